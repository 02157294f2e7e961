//! `evenkeel run --fault`: faults reach the simulated machine, the report tells of them, and wrong ones are refused.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail their test")]

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

/// A folder with a scenario, gone at the end of a test.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str, more: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("evenkeel-faults-{}-{test}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        let text = r#"
seconds = 0.05
warmup = 0
[[groups]]
name = "g"
[[tasks]]
group = "g"
count = 6
program = [{ repeat = { program = [{ run = "50us" }, { sleep = "40us" }] } }]
"#;
        std::fs::write(path.join("tiny.toml"), text.to_owned() + more).unwrap();
        Folder(path)
    }

    fn run(&self, more: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
        command.arg("run").arg(self.0.join("tiny.toml")).args(["--repeat", "1", "--json"]).arg(self.0.join("out.json"));
        command.args(more).output().unwrap()
    }

    /// Runs on a simulated machine; the hash of all events, and the notes.
    fn simulate(&self, more: &[&str]) -> (String, Vec<String>) {
        let output = self.run(&[&["--on", "sim", "--machine", "flat-4"], more].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        let whole: Value = serde_json::from_slice(&std::fs::read(self.0.join("out.json")).unwrap()).unwrap();
        let notes = whole[0]["notes"].as_array().unwrap().iter().map(|note| note.as_str().unwrap().to_owned());
        (whole[0]["sim"]["hash"].as_str().unwrap().to_owned(), notes.collect())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const BOTH: [&str; 4] = ["--fault", "stall=100us@2000/s", "--fault", "tick=exp:300us@50%"];

#[test]
fn faults_happen_and_are_told_of() {
    let folder = Folder::new("happen", "");
    let (without, none) = folder.simulate(&[]);
    let (with, notes) = folder.simulate(&BOTH);
    assert!(none.iter().all(|note| !note.contains("fault")), "{none:?}");
    for kind in ["stall", "tick"] {
        assert!(notes.iter().any(|note| note.starts_with(&format!("fault `{kind}` happened "))), "{notes:?}");
    }
    assert_ne!(with, without);
    assert_eq!(folder.simulate(&["--fault", "stall=100us@2000/s,tick=exp:300us@50%"]).0, with);
    assert_eq!(folder.simulate(&[&BOTH[..], &["--check-determinism"]].concat()).0, with);
}

#[test]
fn wrong_faults_are_refused() {
    let folder = Folder::new("refused", "");
    let sim = ["--on", "sim", "--machine", "flat-4"];
    for (more, expected) in [
        (&["--fault", "stal=1us@1/s"][..], "--fault stal=1us@1/s: `stal=1us@1/s`: expected one of stall=LENGTH@RATE/s"),
        (&["--fault", "kick=1us@2%", "--fault", "kick=1us@3%"], "`kick` is there twice"),
        (&["--fault", "stall=1ms@900/s"], "expected at most 500ms"),
    ] {
        let output = folder.run(&[&sim[..], more].concat());
        assert_eq!(output.status.code(), Some(2), "{more:?}");
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    }
    let output = folder.run(&["--on", "threads", "--fault", "kick=1us@2%"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("expected `sim` among the targets of --on"), "{}", stderr(&output));
}

#[test]
fn the_line_that_repeats_a_run_has_its_faults() {
    let folder = Folder::new("repeats", "[expect.sim]\n\"g.work_s\" = { min = 1000 }\n");
    let output = folder.run(&[&["--on", "sim", "--machine", "flat-4"], &BOTH[..]].concat());
    assert_eq!(output.status.code(), Some(10));
    let said = stderr(&output) + &String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("--fault stall=100us@2000/s --fault tick=exp:300us@50%"), "{said}");
}
