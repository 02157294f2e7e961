//! The rules that keep the crates apart, checked on the source itself. Why they are so is in ARCHITECTURE.md.
//!
//! What a lint can see (atomics, locks, clocks, hash maps with random order) is in the `clippy.toml` of each crate.

#![expect(clippy::unwrap_used, reason = "what cannot be read fails the test")]

use std::fs;
use std::path::{Path, PathBuf};

/// The files that may hold `unsafe`, below `crates`.
const UNSAFE_FILES: [&str; 6] = [
    "engine/src/context.rs",
    "engine/src/inbox.rs",
    "engine/src/task/future.rs",
    "engine/src/task/mod.rs",
    "evenkeel/src/affinity.rs",
    "evenkeel/src/threads.rs",
];

/// What a `cfg` may ask about: the system, the build, tests, and the features that carry tests. None names a host that is
/// built for use.
const CFG_WORDS: [&str; 13] = [
    "all",
    "any",
    "not",
    "test",
    "loom",
    "debug_assertions",
    "feature",
    "\"test-host\"",
    "target_os",
    "target_arch",
    "target_pointer_width",
    "unix",
    "windows",
];

/// Lint attributes and the values of `target_*` say nothing about hosts.
fn is_allowed_in_cfg(word: &str) -> bool {
    let is_value = word.starts_with('"') && word != "\"threads\"" && word != "\"sim\"";
    CFG_WORDS.contains(&word) || is_value
}

fn crates() -> PathBuf {
    let engine = Path::new(env!("CARGO_MANIFEST_DIR"));
    engine.parent().unwrap().to_path_buf()
}

/// The Rust files below a folder of `crates`, by their path from there, with their text.
fn sources(folder: &str) -> Vec<(String, String)> {
    let root = crates();
    let mut files = Vec::new();
    let mut folders = vec![root.join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(&root).unwrap().to_string_lossy().replace('\\', "/");
                files.push((name, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    assert!(!files.is_empty(), "{folder} has sources");
    files.sort();
    files
}

/// The lines of a source, numbered, without comments and without the contents of strings.
fn code(text: &str) -> impl Iterator<Item = (usize, String)> + '_ {
    text.lines().enumerate().map(|(index, line)| (index + 1, without_comment(line)))
}

fn without_comment(line: &str) -> String {
    let end = line.find("//").unwrap_or(line.len());
    line[..end].to_owned()
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// Every line of these folders for which `is_bad` holds, as file and line.
fn offenders(folders: &[&str], is_bad: impl Fn(&str, &str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for (name, text) in folders.iter().flat_map(|folder| sources(folder)) {
        let bad = code(&text).filter(|(_, line)| is_bad(&name, line));
        found.extend(bad.map(|(number, line)| format!("{name}:{number}: {}", line.trim())));
    }
    found
}

fn assert_none(rule: &str, found: &[String]) {
    assert!(found.is_empty(), "{rule}:\n{}", found.join("\n"));
}

/// The section of a manifest, without its heading.
fn section(manifest: &str, heading: &str) -> String {
    let lines = manifest.lines().skip_while(|line| line.trim() != heading).skip(1);
    lines.take_while(|line| !line.starts_with('[')).fold(String::new(), |all, line| all + line + "\n")
}

fn manifest(name: &str) -> String {
    fs::read_to_string(crates().join(name).join("Cargo.toml")).unwrap()
}

#[test]
fn core_uses_neither_std_nor_atomics() {
    let text = fs::read_to_string(crates().join("core/src/lib.rs")).unwrap();
    assert!(text.contains("\n#![no_std]\n"), "core is no_std");
    assert!(text.contains("\n#![forbid(unsafe_code)]\n"), "core has no unsafe code");
    let is_bad = |_: &str, line: &str| {
        let is_std = line.contains("extern crate std") || line.contains("std::");
        is_std || words(line).any(|word| word == "atomic" || word == "sync" || word.starts_with("Atomic"))
    };
    assert_none("core knows no std, atomic or lock", &offenders(&["core/src"], is_bad));
}

#[test]
fn crates_depend_on_those_below_them_only() {
    let below = [
        ("core", ["evenkeel-engine", "evenkeel-lab", "evenkeel."]),
        ("engine", ["evenkeel.", "evenkeel ", "evenkeel-lab"]),
    ];
    for (name, above) in below {
        let dependencies = section(&manifest(name), "[dependencies]");
        for line in dependencies.lines() {
            let is_bad = above.iter().any(|crate_name| line.starts_with(crate_name));
            assert!(!is_bad, "{name} depends on a crate above it: {line}");
        }
    }
    assert!(section(&manifest("engine"), "[dependencies]").contains("evenkeel-core"), "sections are read");
    assert!(!section(&manifest("evenkeel"), "[dependencies]").contains("lab"), "the runtime needs no lab");
}

#[test]
fn no_cfg_names_a_host() {
    let is_bad = |_: &str, line: &str| {
        let Some(start) = line.find("cfg(").or_else(|| line.find("cfg!(")) else { return false };
        let asked = balanced(line[start..].split_once('(').map_or("", |(_, rest)| rest));
        let pieces = asked.split([',', '(', ')', '=', ' ']);
        pieces.filter(|piece| !piece.is_empty()).any(|piece| !is_allowed_in_cfg(piece))
    };
    assert_none("a cfg asks for something else", &offenders(&["core/src", "engine/src"], is_bad));
}

/// What stands before the parenthesis that closes one which was opened before `text`.
fn balanced(text: &str) -> &str {
    let mut depth = 1;
    let end = text.find(|c| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        depth == 0
    });
    &text[..end.unwrap_or(text.len())]
}

#[test]
fn unsafe_code_is_in_named_files_only() {
    let is_bad = |name: &str, line: &str| {
        let is_unsafe = words(line).any(|word| word == "unsafe") && !line.contains("forbid(unsafe");
        is_unsafe && !UNSAFE_FILES.contains(&name)
    };
    assert_none(
        "unsafe outside the named files",
        &offenders(&["core/src", "engine/src", "evenkeel/src", "lab/src"], is_bad),
    );
    for file in UNSAFE_FILES {
        let text = fs::read_to_string(crates().join(file)).unwrap();
        let has_unsafe = code(&text).any(|(_, line)| words(&line).any(|word| word == "unsafe"));
        assert!(has_unsafe, "{file} has no unsafe code any more: take it off the list");
    }
}

#[test]
fn the_engine_has_one_global() {
    let is_bad = |name: &str, line: &str| {
        let is_test = line.starts_with("        ") || line.contains("cfg(test)");
        let is_global = line.trim_start().starts_with("static ") || line.trim_start().starts_with("pub static ");
        let is_thread_local = line.contains("thread_local!");
        (is_global || is_thread_local) && !is_test && name != "engine/src/context.rs"
    };
    assert_none("a global outside context.rs", &offenders(&["core/src", "engine/src"], is_bad));
}

#[test]
fn every_module_says_what_it_knows_nothing_of() {
    let mut found = Vec::new();
    for (name, text) in sources("engine/src").into_iter().chain(sources("core/src")) {
        let mut header = text.lines().take_while(|line| line.starts_with("//!"));
        let is_said = header.any(|line| line.contains("nows nothing"));
        if !is_said && !name.ends_with("tests.rs") {
            found.push(name);
        }
    }
    assert_none("no word in the header on what it knows nothing of", &found);
}

#[test]
fn files_are_of_a_size_to_read() {
    let folders = ["core/src", "engine/src", "evenkeel/src", "lab/src"];
    for (name, text) in folders.iter().flat_map(|folder| sources(folder)) {
        assert!(text.lines().count() <= 600, "{name} has more than 600 lines");
    }
}
