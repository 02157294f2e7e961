//! A trace as one page of HTML, which needs nothing else: no network, no other file.
//!
//! The page holds the trace as bytes (`data.rs` says how they are laid out) and a script that draws them.
//!
//! Knows nothing of how a trace is read off a record.

mod data;
#[cfg(test)]
mod tests;

use crate::model::Trace;
use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use std::io::{self, Write};

/// So many events a page holds at most: slices and changes of queue lengths. A browser draws them without a pause, and the
/// file has about 20 MB then.
pub const EVENTS_MAX: usize = 1_500_000;

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPTS: [&str; 3] = [include_str!("read.js"), include_str!("draw.js"), include_str!("page.js")];

/// What the script has to know before it reads the bytes.
#[derive(Serialize)]
struct Header<'a> {
    title: &'a str,
    machine: &'a str,
    begin: u64,
    end: u64,
    /// Events of the run that the trace does not have.
    left_out: u64,
    /// Events of the trace that the page does not have.
    dropped: usize,
    events_max: usize,
    cpus: Vec<&'a str>,
    groups: Vec<&'a str>,
}

/// Writes the page of a trace.
///
/// # Errors
/// If `out` does not take it.
pub fn write(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
    write_up_to(trace, EVENTS_MAX, out)
}

/// Writes a page with at most so many events.
fn write_up_to(trace: &Trace, max: usize, out: &mut impl Write) -> io::Result<()> {
    let data = data::encode(trace, max);
    let header = Header {
        title: &trace.title,
        machine: &trace.machine,
        begin: trace.begin.as_nanos(),
        end: data.end.as_nanos(),
        left_out: trace.left_out,
        dropped: data.dropped,
        events_max: max,
        cpus: trace.cpus.iter().map(|row| row.name.as_str()).collect(),
        groups: trace.groups.iter().map(|group| group.name.as_str()).collect(),
    };
    let header = serde_json::to_string(&header)?;
    // Marks are looked for in the page alone, never in what is put in.
    let mut rest = PAGE;
    while let Some((before, after)) = rest.split_once("{{") {
        let (mark, after) = after.split_once("}}").unwrap_or((after, ""));
        out.write_all(before.as_bytes())?;
        match mark {
            "title" => write!(out, "{} on {}", escaped(&trace.title), escaped(&trace.machine))?,
            "style" => out.write_all(STYLE.as_bytes())?,
            "header" => out.write_all(inert(&header).as_bytes())?,
            "data" => write!(out, "{}", Base64Display::new(&data.bytes, &STANDARD))?,
            "script" => SCRIPTS.iter().try_for_each(|script| out.write_all(script.as_bytes()))?,
            _ => {}
        }
        rest = after;
    }
    out.write_all(rest.as_bytes())
}

/// Text for a place between tags.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// JSON that can stand inside a script element: nothing in it ends or begins one.
fn inert(json: &str) -> String {
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}
