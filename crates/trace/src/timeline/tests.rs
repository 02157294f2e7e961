use super::*;
use crate::model::{Flow, Group, Row, Run, Slice, What};
use base64::Engine;
use evenkeel_core::{CpuId, GroupId, Span, Time};
use serde_json::Value;

fn us(micros: u64) -> Time {
    Time::ZERO.after(Span::from_micros(micros))
}

fn slice(begin: u64, end: Option<u64>, what: What) -> Slice {
    Slice { begin: us(begin), is_begun_before: false, end: end.map(us), what, order: (0, 0) }
}

fn run(task: u32, flow: Option<usize>) -> Run {
    let work = Some(Span::from_micros(3));
    Run {
        task,
        group: GroupId::new(7),
        work,
        runnable_since: flow.map(|_| us(9)),
        flow,
        moved_from: flow.map(|_| CpuId::new(1)),
    }
}

/// Two CPUs; a name that would end a script, were it put in as it is.
fn small() -> Trace {
    let first = Row {
        name: "CPU 0".to_owned(),
        slices: vec![
            slice(1, Some(5), What::Idle { kicked_by: Some(CpuId::OUTSIDE) }),
            slice(10, Some(400_000_000), What::Task(run(300, Some(0)))),
            slice(400_000_001, Some(400_000_002), What::User(None)),
            slice(400_000_003, None, What::Task(Run { work: None, ..run(5, None) })),
        ],
        queue: vec![(us(2), 1), (us(3), 500), (us(400_000_003), 0)],
        ..Row::default()
    };
    let second =
        Row { name: "CPU 1".to_owned(), slices: vec![slice(2, Some(3), What::LockWait { lock: 9 })], ..Row::default() };
    Trace {
        title: "</title><script>alert(\"{{data}}\")</script> & more".to_owned(),
        machine: "a&b".to_owned(),
        begin: Time::ZERO,
        end: us(400_000_010),
        left_out: 0,
        cpus: vec![first, second],
        outside: Row::default(),
        groups: vec![Group {
            id: GroupId::new(7),
            name: "</script><img src=x onerror=\"alert(1)\"><!-- {{script}}".to_owned(),
            clock: Vec::new(),
        }],
        flows: vec![Flow {
            task: 300,
            is_spawn: true,
            at: us(9),
            from: CpuId::new(1),
            waker: Some(4),
            to: Some((CpuId::new(0), 1)),
        }],
    }
}

fn page(trace: &Trace, max: usize) -> String {
    let mut bytes = Vec::new();
    write_up_to(trace, max, &mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

/// What stands between the tags of the element with an id.
fn inside<'a>(page: &'a str, id: &str) -> &'a str {
    let (_, after) = page.split_once(&format!("id=\"{id}\">")).unwrap();
    after.split_once("</script>").unwrap().0
}

fn header_of(page: &str) -> Value {
    serde_json::from_str(inside(page, "header")).unwrap()
}

/// All numbers of the page's data.
fn numbers(page: &str) -> Vec<u64> {
    let bytes = STANDARD.decode(inside(page, "data")).unwrap();
    let mut bytes = bytes.as_slice();
    let mut numbers = Vec::new();
    while !bytes.is_empty() {
        numbers.push(prost::encoding::decode_varint(&mut bytes).unwrap());
    }
    numbers
}

/// The elements of a page that are still open at its end, or that were closed out of turn. What scripts and styles hold is no
/// markup.
fn unbalanced(page: &str) -> Vec<String> {
    const EMPTY: [&str; 2] = ["!doctype", "meta"];
    let (mut open, mut wrong, mut rest) = (Vec::new(), Vec::new(), page);
    while let Some((_, tag)) = rest.split_once('<') {
        let (tag, after) = tag.split_once('>').expect("a tag ends");
        rest = after;
        let name = tag.split_whitespace().next().unwrap_or_default().to_owned();
        if let Some(name) = name.strip_prefix('/') {
            if open.pop().as_deref() != Some(name) {
                wrong.push(name.to_owned());
            }
        } else if !EMPTY.contains(&name.to_lowercase().as_str()) {
            if ["script", "style"].contains(&name.as_str()) {
                let end = rest.find(&format!("</{name}")).expect("what is no markup ends");
                rest = &rest[end..];
            }
            open.push(name);
        }
    }
    wrong.extend(open);
    wrong
}

#[test]
fn the_page_is_well_formed_whatever_names_hold() {
    let page = page(&small(), EVENTS_MAX);
    assert_eq!(unbalanced(&page), Vec::<String>::new());
    assert_eq!(page.matches("<script").count(), 3);
    assert_eq!(page.matches("</script").count(), 3);
    assert_eq!(page.matches("<img").count(), 0);
    let header = header_of(&page);
    assert_eq!(header["groups"][0], small().groups[0].name);
    assert_eq!(header["title"], small().title);
    assert!(page.contains(
        "<title>&lt;/title&gt;&lt;script&gt;alert(\"{{data}}\")&lt;/script&gt; &amp; more on a&amp;b</title>"
    ));
}

#[test]
fn the_checker_of_this_test_sees_what_is_not_closed() {
    assert_eq!(unbalanced("<p><b>x</p></b>"), ["p", "b"]);
    assert_eq!(unbalanced("<p><script>a < b</script>"), ["p"]);
}

#[test]
fn the_page_fetches_nothing() {
    let page = page(&small(), EVENTS_MAX);
    let own = page.replace(inside(&page, "header"), "").replace(inside(&page, "data"), "");
    let fetching =
        ["http:", "https:", "//cdn", " src=", " href=", "url(", "@import", "fetch(", "import(", "XMLHttp", "WebSocket"];
    for word in fetching {
        assert!(!own.contains(word), "{word}");
    }
    assert!(own.contains("default-src 'none'"));
    assert!(!own.contains("innerHTML") && !own.contains("document.write"));
}

#[test]
fn the_page_holds_every_slice() {
    let big = 400_000_000_000 - 10_000;
    let expected = [
        vec![4],
        vec![2, 1_000, 4_000, 1],
        vec![8 + 16 + 32, 5_000, big, 0, 300, 3_001, 1_000, 2, 2 * 5 + 1, 1],
        vec![1, 1_000, 1_000, 0],
        vec![4, 1_000, 7_000, 0, 5, 0],
        vec![3, 2_000, 1, 1_000, 500, 399_999_999_000 + 1_000, 0],
        vec![1, 3, 2_000, 1_000, 9, 0],
    ];
    assert_eq!(numbers(&page(&small(), EVENTS_MAX)), expected.concat());
}

#[test]
fn a_page_that_is_too_long_ends_earlier_and_says_so() {
    let page = page(&small(), 4);
    let header = header_of(&page);
    // Told: idle, a lock wait, and two changes of the queue. The task that comes next is where it ends.
    assert_eq!((&header["dropped"], &header["events_max"]), (&Value::from(4), &Value::from(4)));
    assert_eq!(header["end"], 10_000);
    assert_eq!(numbers(&page), [1, 2, 1_000, 4_000, 1, 2, 2_000, 1, 1_000, 500, 1, 3, 2_000, 1_000, 9, 0]);
}

#[test]
fn a_run_in_which_nothing_happened_has_a_page() {
    let empty = |row: Row| Row { slices: Vec::new(), queue: Vec::new(), ..row };
    let trace = small();
    let trace = Trace { cpus: trace.cpus.into_iter().map(empty).collect(), groups: Vec::new(), ..trace };
    let page = page(&trace, EVENTS_MAX);
    assert_eq!(numbers(&page), [0, 0, 0, 0]);
    assert_eq!(header_of(&page)["dropped"], 0);
}
