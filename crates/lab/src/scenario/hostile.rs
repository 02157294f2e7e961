//! Scenario files that somebody made up: a scenario, or an error that names a line. Never a panic, nor anything without end.

use super::*;
use proptest::prelude::*;
use proptest::sample::Index;

/// What stands where a value should.
const VALUES: [&str; 40] = [
    "0",
    "1",
    "3",
    "1000000",
    "1000001",
    "-1",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "0.0",
    "1e-300",
    "1e308",
    "-0.0",
    "nan",
    "inf",
    "-inf",
    "true",
    "\"\"",
    "\"g\"",
    "\"0s\"",
    "\"-1us\"",
    "\"1ns\"",
    "\"99999999h\"",
    "\"1e9us\"",
    "\"10us\"",
    "[]",
    "{}",
    "[[[]]]",
    "\"yield\"",
    "[\"yield\", \"exit\"]",
    "[{ run = \"1us\" }]",
    "\"closed\"",
    "{ uniform = [\"5us\", \"1us\"] }",
    "{ exponential = \"1s\" }",
    "{ open = { rate = 1e9 } }",
    "{ closed = { clients = 0 } }",
    "{ repeat = { times = 1000000000, program = [{ repeat = { times = 1000000000, program = [\"yield\"] } }] } }",
    "{ spawn = { program = [{ spawn = { program = [] } }] } }",
    "1979-05-27T07:32:00Z",
    "\"\\u0000\"",
];

/// What is done to a file.
#[derive(Clone, Debug)]
enum Change {
    Value(Index, Index),
    Drop(Index),
    Repeat(Index, Index),
    Insert(Index, String),
    Cut(Index),
    Char(Index, char),
    Word(Index, Index),
}

fn change() -> impl Strategy<Value = Change> {
    let index = any::<Index>;
    prop_oneof![
        4 => (index(), index()).prop_map(|(line, value)| Change::Value(line, value)),
        1 => index().prop_map(Change::Drop),
        1 => (index(), index()).prop_map(|(from, to)| Change::Repeat(from, to)),
        1 => (index(), "\\PC{0,30}").prop_map(|(line, text)| Change::Insert(line, text)),
        1 => index().prop_map(Change::Cut),
        2 => (index(), any::<char>()).prop_map(|(place, char)| Change::Char(place, char)),
        3 => (index(), index()).prop_map(|(place, value)| Change::Word(place, value)),
    ]
}

fn apply(text: &str, change: &Change) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let count = lines.len().max(1);
    match change {
        Change::Value(line, value) => {
            if let Some(line) = lines.get_mut(line.index(count))
                && let Some((key, _)) = line.split_once('=')
            {
                *line = format!("{key}= {}", value.get(&VALUES));
            }
        }
        Change::Drop(line) if !lines.is_empty() => drop(lines.remove(line.index(count))),
        Change::Repeat(from, to) if !lines.is_empty() => {
            lines.insert(to.index(count), lines[from.index(count)].clone())
        }
        Change::Insert(line, text) if !lines.is_empty() => lines.insert(line.index(count), text.clone()),
        Change::Cut(line) => lines.truncate(line.index(count)),
        Change::Char(place, char) => {
            let mut chars: Vec<char> = text.chars().collect();
            let place = place.index(chars.len().max(1));
            if let Some(old) = chars.get_mut(place) {
                *old = *char;
            }
            return chars.into_iter().collect();
        }
        // A string inside a value, such as a time, a name, or an operation.
        Change::Word(place, value) => {
            let mut parts: Vec<&str> = text.split('"').collect();
            let inside = parts.len() / 2;
            if inside > 0 {
                let value = value.get(&VALUES).trim_matches('"');
                parts[2 * place.index(inside) + 1] = value;
            }
            return parts.join("\"");
        }
        _ => {}
    }
    lines.join("\n")
}

fn shipped() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.is_file());
    paths.sort();
    paths.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect()
}

/// One of every operation, arrival and key.
const EVERYTHING: &str = r#"
seconds = 2.0
warmup = 0.5
[[groups]]
name = "g"
weight = 300
role = "batch"
[[groups]]
name = "h"
[[tasks]]
group = "g"
count = 3
start = "10ms"
stop = "1s"
program = [{ repeat = { times = 4, program = [{ run = "5us" }, "yield", { sleep = { uniform = ["1us", "9us"] } }] } }, { lock = "l" }, { run = { exponential = "2us" } }, { unlock = "l" }]
[[tasks]]
group = "h"
arrival = { open = { rate = 100.0, spacing = "even" } }
program = [{ spawn = { group = "g", program = [{ run = "1us" }] } }, { notify = "n" }]
[[tasks]]
group = "h"
arrival = { closed = { clients = 2, think = "1ms" } }
program = [{ wait = "n" }, { run = "1us" }]
[expect.threads]
"g.share" = { min = 0.1, max = 1.0 }
"all.jain" = { min = 0.5 }
"#;

fn check(text: &str) -> Result<(), TestCaseError> {
    match of_text(text) {
        Ok(scenario) => {
            prop_assert!(!scenario.groups.is_empty() && !scenario.tasks.is_empty());
            // What later stages ask first.
            let _ = scenario.longest_poll();
            for set in &scenario.tasks {
                prop_assert!(set.group.0 < scenario.groups.len());
                let _ = (
                    set.program.planned_work(fastrand::Rng::with_seed(1)),
                    set.program.ends(),
                    set.program.only_computes(),
                );
            }
        }
        Err(Failure::Input(error)) => {
            let rest = error.strip_prefix("here.toml:").unwrap_or_else(|| panic!("{error}"));
            let (line, what) = rest.split_once(": ").unwrap_or_else(|| panic!("{error}"));
            let line: usize = line.parse().unwrap_or_else(|_| panic!("{error}"));
            prop_assert!(line >= 1 && line <= text.matches('\n').count() + 1, "{}", error);
            prop_assert!(!what.is_empty() && !what.contains('\n'), "{}", error);
        }
        Err(other) => prop_assert!(false, "{:?}", other),
    }
    Ok(())
}

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) }
}

proptest! {
    #![proptest_config(cases(1_500))]

    #[test]
    fn changed_files_give_a_scenario_or_an_error_with_a_line(
        file in any::<Index>(),
        changes in prop::collection::vec(change(), 1..6),
    ) {
        let mut files = shipped();
        files.extend((0..8).map(|_| EVERYTHING.to_owned()));
        let text = changes.iter().fold(file.get(&files).clone(), |text, change| apply(&text, change));
        check(&text)?;
    }

    #[test]
    fn any_text_gives_an_error_with_a_line(text in "(\\[\\[(groups|tasks)\\]\\]\n|[a-z]{1,9} = [-+.a-z0-9\\[\\]{}\"]{0,12}\n|\\PC{0,20}\n){0,20}") {
        check(&text)?;
    }
}

#[test]
fn the_file_with_everything_is_a_scenario() {
    of_text(EVERYTHING).unwrap_or_else(|failure| panic!("{failure}"));
}
