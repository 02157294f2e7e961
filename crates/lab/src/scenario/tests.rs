use super::*;

/// A whole scenario around the given lines; `tasks` goes into the one task set, from line 4 on.
fn with_tasks(tasks: &str) -> String {
    format!("[[groups]]\nname = \"g\"\n[[tasks]]\n{tasks}\n")
}

/// The same for a family of three groups; from line 5 on.
fn family(tasks: &str) -> String {
    format!("[[groups]]\nname = \"g#\"\ncount = 3\n[[tasks]]\n{tasks}\n")
}

fn message(text: &str) -> String {
    match of_text(text) {
        Err(Failure::Input(message)) => message,
        other => panic!("expected bad input, got {other:?} from\n{text}"),
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table: one case a line")]
fn hostile_input_is_refused_with_its_line() {
    let run = "program = [{ run = \"1us\" }]";
    let cases: Vec<(String, usize, &str)> = vec![
        ("".into(), 1, "no groups"),
        ("[[groups]]\nname = \"g\"\n".into(), 1, "no tasks"),
        ("seconds = ".into(), 1, ""),
        ("seconds = nan\n".to_owned() + &with_tasks(&format!("group = \"g\"\n{run}")), 1, "seconds = NaN"),
        ("seconds = -1\n".to_owned() + &with_tasks(&format!("group = \"g\"\n{run}")), 1, "seconds = -1"),
        ("\nseconds = 1e300\n".to_owned() + &with_tasks(&format!("group = \"g\"\n{run}")), 2, "expected 0.01 to 3600"),
        ("warmup = inf\n".to_owned() + &with_tasks(&format!("group = \"g\"\n{run}")), 1, "warmup = inf"),
        (
            "machine = \"flat-3\"\n".to_owned() + &with_tasks(&format!("group = \"g\"\n{run}")),
            1,
            "unknown machine `flat-3`",
        ),
        ("colour = 1\n".to_owned() + &with_tasks(&format!("group = \"g\"\n{run}")), 1, "unknown field `colour`"),
        ("[[groups]]\nname = \"g\"\nwieght = 1\n".into(), 3, "unknown field `wieght`"),
        ("[[groups]]\nname = \"g\"\nweight = 0\n".into(), 3, "weight = 0, expected 1 to 10000"),
        ("[[groups]]\nname = \"g\"\nweight = 10001\n".into(), 3, "weight = 10001"),
        ("[[groups]]\nname = \"g\"\nweight = 99999999999999999999\n".into(), 3, ""),
        ("[[groups]]\nname = \"g\"\nweight = \"x\"\n".into(), 3, "expected"),
        ("[[groups]]\nname = \"g\"\nrole = \"both\"\n".into(), 3, "unknown variant `both`"),
        ("[[groups]]\nname = \"g\"\nparent = \"p\"\n".into(), 3, "`parent` can't be honored"),
        ("[[groups]]\nname = \"g\"\ncpus = []\n".into(), 3, "no CPU"),
        ("[[groups]]\nname = \"g\"\ncpus = \"\"\n".into(), 3, "no CPU named"),
        ("[[groups]]\nname = \"g\"\ncpus = \"3-1\"\n".into(), 3, "ends before it begins"),
        ("[[groups]]\nname = \"g\"\ncpus = [-1]\n".into(), 3, ""),
        ("[[groups]]\nname = \"g\"\ncpus = 2\n".into(), 3, "CPUs such as"),
        ("[[groups]]\nname = \"g\"\ncpus = \"0-9999\"\n".into(), 3, "numbers up to 8191"),
        (with_tasks(&format!("group = \"g\"\ncpus = \"all\"\n{run}")), 5, "not a set of CPUs"),
        (
            format!("[[groups]]\nname = \"g\"\ncpus = \"0-1\"\n[[tasks]]\ngroup = \"g\"\ncpus = \"2\"\n{run}"),
            6,
            "none of those of group `g`",
        ),
        ("[[groups]]\nname = \"g\"\nquota = \"1ms\"\n".into(), 3, "`quota` can't be honored"),
        ("[[groups]]\nname = \"g\"\nclass = \"idle\"\n".into(), 3, "`class` can't be honored"),
        ("[[groups]]\nname = \"g\"\nslice = \"1ms\"\n".into(), 3, "`slice` can't be honored"),
        ("[[groups]]\nname = \"g\"\n[[groups]]\nname = \"g\"\n".into(), 4, "a second group `g`"),
        ("[[groups]]\nname = \"cpu\"\n".into(), 2, "reserved"),
        ("[[groups]]\nname = \"a.b\"\n".into(), 2, "letters, digits"),
        ("[[groups]]\nname = \"\"\n".into(), 2, "letters, digits"),
        ("[[groups]]\nweight = 1\n".into(), 1, "missing field `name`"),
        ("[[groups]]\nname = \"g#\"\n".into(), 2, "`g#` without `count`"),
        ("[[groups]]\nname = \"g\"\ncount = 3\n".into(), 3, "expected a `#` in the name"),
        ("[[groups]]\nname = \"g##\"\ncount = 3\n".into(), 2, "one `#` for a family"),
        ("[[groups]]\nname = \"g#\"\ncount = 0\n".into(), 3, "count = 0, expected 1 to 10000"),
        ("[[groups]]\nname = \"g#\"\ncount = 9000000000000000000\n".into(), 3, "expected 1 to 10000"),
        ("[[groups]]\nname = \"g#\"\ncount = 10000\n[[groups]]\nname = \"h\"\n".into(), 5, "too many groups"),
        ("[[groups]]\nname = \"g#\"\ncount = 3\n[[groups]]\nname = \"g2\"\n".into(), 5, "a second group `g2`"),
        ("[[groups]]\nname = \"g\"\nweight = { zipf = 9 }\n".into(), 3, "`zipf` for one group"),
        ("[[groups]]\nname = \"g#\"\ncount = 3\nweight = { zipf = 0 }\n".into(), 4, "zipf = 0, expected"),
        ("[[groups]]\nname = \"g#\"\ncount = 3\nweight = { zipf = nan }\n".into(), 4, "zipf = NaN, expected"),
        ("[[groups]]\nname = \"g#\"\ncount = 3\nweight = { zipf = 20001 }\n".into(), 4, "weight = 20001"),
        ("[[groups]]\nname = \"g#\"\ncount = 3\nweight = { zip = 9 }\n".into(), 4, "unknown field `zip`"),
        ("[[groups]]\nname = \"g#\"\ncount = 3\nweight = {}\n".into(), 4, "empty table"),
        (family(&format!("group = \"g\"\n{run}")), 5, "unknown group `g`"),
        (family(&format!("group = \"g#\"\ncount = {{ zipf = 1e300 }}\n{run}")), 6, "expected 1 to 1000000"),
        (family(&format!("group = \"g2\"\ncount = {{ zipf = 5 }}\n{run}")), 6, "`zipf` for one group"),
        (
            family(&format!("group = \"g#\"\narrival = {{ closed = {{ clients = {{ zipf = -1 }} }} }}\n{run}")),
            6,
            "zipf = -1, expected",
        ),
        (family(&format!("group = \"g#\"\ncount = 400000\n{run}")), 6, "too many tasks"),
        (
            family("group = \"g1\"\nprogram = [{ spawn = { group = \"g#\", program = [\"yield\"] } }]"),
            6,
            "`g#` is a family",
        ),
        (
            family(&format!("group = \"g1\"\n{run}\n[expect.threads]\n\"g#.speed\" = {{ min = 1 }}")),
            8,
            "unknown figure",
        ),
        (with_tasks(&format!("group = \"h\"\n{run}")), 4, "unknown group `h`"),
        (with_tasks(&format!("group = \"g\"\ncount = 0\n{run}")), 5, "count = 0"),
        (with_tasks(&format!("group = \"g\"\ncount = -3\n{run}")), 5, "count = -3"),
        (with_tasks(&format!("group = \"g\"\ncount = 9000000000000000000\n{run}")), 5, "expected 1 to 1000000"),
        (with_tasks(&format!("group = \"g\"\ncount = 1.5\n{run}")), 5, "expected"),
        (with_tasks(&format!("group = \"g\"\narrival = \"often\"\n{run}")), 5, "unknown variant `often`"),
        (with_tasks(&format!("group = \"g\"\narrival = {{ open = {{ rate = 0 }} }}\n{run}")), 5, "rate = 0"),
        (
            with_tasks(&format!("group = \"g\"\narrival = {{ open = {{ rate = 1e12 }} }}\n{run}")),
            5,
            "rate = 1000000000000",
        ),
        (with_tasks(&format!("group = \"g\"\narrival = {{ open = {{ rate = nan }} }}\n{run}")), 5, "rate = NaN"),
        (
            with_tasks(&format!("group = \"g\"\narrival = {{ open = {{ rate = 1, burst = 2 }} }}\n{run}")),
            5,
            "unknown field `burst`",
        ),
        (with_tasks(&format!("group = \"g\"\narrival = {{ closed = {{ clients = 0 }} }}\n{run}")), 5, "clients = 0"),
        (
            with_tasks(&format!("group = \"g\"\ncount = 2\narrival = {{ closed = {{ clients = 1 }} }}\n{run}")),
            5,
            "beside closed",
        ),
        (with_tasks(&format!("group = \"g\"\nstart = \"-1s\"\n{run}")), 5, "not a time"),
        (with_tasks(&format!("group = \"g\"\nstart = \"2s\"\nstop = \"1s\"\n{run}")), 6, "stops before it starts"),
        (with_tasks(&format!("group = \"g\"\nstop = \"99999h\"\n{run}")), 5, "not a time"),
        (with_tasks("group = \"g\"\nprogram = []"), 5, "an empty program"),
        (with_tasks("group = \"g\""), 3, "missing field `program`"),
        (with_tasks("group = \"g\"\nprogram = [\n \"yield\",\n \"yeild\" ]"), 7, "unknown variant `yeild`"),
        (with_tasks("group = \"g\"\nprogram = [\n { run = 5 } ]"), 6, "expected a time such as"),
        (with_tasks("group = \"g\"\nprogram = [\n { run = \"0us\" } ]"), 6, "no time at all"),
        (with_tasks("group = \"g\"\nprogram = [\n { run = \"-5us\" } ]"), 6, "not a time"),
        (with_tasks("group = \"g\"\nprogram = [\n { run = \"1e9s\" } ]"), 6, "not a time"),
        (with_tasks("group = \"g\"\nprogram = [\n { sleep = \"99999s\" } ]"), 6, "too long"),
        (
            with_tasks("group = \"g\"\nprogram = [\n { run = { uniform = [\"5us\", \"1us\"] } } ]"),
            6,
            "longer to a shorter",
        ),
        (with_tasks("group = \"g\"\nprogram = [\n { run = { normal = \"5us\" } } ]"), 6, "unknown field `normal`"),
        (with_tasks("group = \"g\"\nprogram = [\n { run = { exponential = \"0us\" } } ]"), 6, "no time at all"),
        (with_tasks("group = \"g\"\nprogram = [\n { run = {} } ]"), 6, "empty table"),
        (
            with_tasks("group = \"g\"\nprogram = [\n { repeat = { times = 0, program = [\"yield\"] } } ]"),
            6,
            "times = 0",
        ),
        (
            with_tasks("group = \"g\"\nprogram = [\n { repeat = { times = 99999999999, program = [\"yield\"] } } ]"),
            6,
            "times = ",
        ),
        (with_tasks("group = \"g\"\nprogram = [\n { repeat = { times = 2, program = [] } } ]"), 6, "an empty program"),
        (
            with_tasks("group = \"g\"\nprogram = [\n { repeat = { program = [{ notify = \"x\" }] } } ]"),
            6,
            "takes no time",
        ),
        (
            with_tasks("group = \"g\"\nprogram = [\n { repeat = { program = [\"yield\"] } },\n \"yield\" ]"),
            7,
            "never reached",
        ),
        (with_tasks("group = \"g\"\nprogram = [\n \"exit\",\n \"yield\" ]"), 7, "never reached"),
        (
            with_tasks("group = \"g\"\nprogram = [\n { spawn = { group = \"h\", program = [\"yield\"] } } ]"),
            6,
            "unknown group `h`",
        ),
        (
            with_tasks("group = \"g\"\nprogram = [\n { spawn = { count = 99999, program = [\"yield\"] } } ]"),
            6,
            "count = 99999",
        ),
        (with_tasks("group = \"g\"\nprogram = [\n { polls = { run = \"1ms\" } } ]"), 6, "missing field `each`"),
        (
            with_tasks("group = \"g\"\nprogram = [\n { polls = { run = \"1ms\", each = \"0us\" } } ]"),
            6,
            "each is no time",
        ),
        (
            with_tasks("group = \"g\"\nprogram = [\n { repeat = { on = \"1ms\", program = [\"yield\"] } } ]"),
            6,
            "one of `on` and `off`",
        ),
        (
            with_tasks(
                "group = \"g\"\nprogram = [\n { repeat = { on = \"1ms\", off = \"0ms\", program = [\"yield\"] } } ]",
            ),
            6,
            "off is no time",
        ),
        (
            with_tasks(
                "group = \"g\"\nprogram = [\n { repeat = { on = \"1ms\", off = \"1ms\", times = 2, program = [\"yield\"] } } ]",
            ),
            6,
            "`times` beside",
        ),
        (
            with_tasks(
                "group = \"g\"\nprogram = [\n { repeat = { on = \"1ms\", off = \"1ms\", program = [{ notify = \"x\" }] } } ]",
            ),
            6,
            "takes no time",
        ),
        (with_tasks("group = \"g\"\nprogram = [\n { unlock = \"m\" } ]"), 6, "not held"),
        (with_tasks("group = \"g\"\nprogram = [\n { lock = \"m\" },\n { lock = \"m\" } ]"), 7, "already held"),
        (
            with_tasks("group = \"g\"\nprogram = [\n { repeat = { times = 2, program = [{ lock = \"m\" }] } } ]"),
            6,
            "other locks held",
        ),
        (with_tasks("group = \"g\"\nprogram = [\n { wait = \"\" } ]"), 6, "empty name"),
        (
            with_tasks(
                "group = \"g\"\narrival = { open = { rate = 1 } }\nprogram = [\n { repeat = { program = [\"yield\"] } } ]",
            ),
            6,
            "never end",
        ),
        (
            with_tasks(&format!("group = \"g\"\n{run}\n[expect.thread]\n\"g.done\" = {{ min = 1 }}")),
            6,
            "unknown target `thread`",
        ),
        (
            with_tasks(&format!("group = \"g\"\n{run}\n[expect.threads]\n\"h.done\" = {{ min = 1 }}")),
            7,
            "unknown group `h`",
        ),
        (
            with_tasks(&format!("group = \"g\"\n{run}\n[expect.threads]\n\"g.speed\" = {{ min = 1 }}")),
            7,
            "unknown figure `g.speed`",
        ),
        (with_tasks(&format!("group = \"g\"\n{run}\n[expect.threads]\n\"g.done\" = {{ }}")), 7, "at least one"),
        (with_tasks(&format!("group = \"g\"\n{run}\n[expect.threads]\n\"g.done\" = {{ min = nan }}")), 7, "finite"),
        (
            with_tasks(&format!("group = \"g\"\n{run}\n[expect.threads]\n\"g.done\" = {{ mni = 1 }}")),
            7,
            "unknown field `mni`",
        ),
        (
            with_tasks(&format!("group = \"g\"\n{run}\n[expect.tokio]\n\"g.done\" = {{ min = 1, times = \"tokio\" }}")),
            7,
            "multiple of itself",
        ),
    ];
    for (text, line, what) in cases {
        let message = message(&text);
        assert!(
            message.starts_with(&format!("here.toml:{line}: ")),
            "expected line {line}, got {message:?} from\n{text}"
        );
        assert!(message.contains(what), "expected {what:?} in {message:?} from\n{text}");
        assert!(!message.contains('\n'), "more than one line: {message:?}");
    }
}

#[test]
fn endless_nesting_is_refused_not_a_stack_overflow() {
    let nested = |depth: usize| {
        let open = "{ repeat = { times = 2, program = [".repeat(depth);
        let close = "] } }".repeat(depth);
        with_tasks(&format!("group = \"g\"\nprogram = [{open}\"yield\"{close}]"))
    };
    assert!(of_text(&nested(program::NEST_MAX)).is_ok());
    assert!(message(&nested(program::NEST_MAX + 1)).contains("nested too deep"));
    let _ = message(&nested(10_000));
    let _ = message(&format!("x = {}", "[".repeat(100_000)));
}

#[test]
fn a_scenario_has_its_defaults() {
    let scenario = of_text(&with_tasks("group = \"g\"\nprogram = [{ run = \"1us\" }]")).unwrap();
    assert_eq!(scenario.seconds, Duration::from_secs(5));
    assert_eq!(scenario.warmup, Duration::from_millis(300));
    assert_eq!(scenario.groups[0].weight, 100);
    assert_eq!(scenario.groups[0].role, Role::Interactive);
    assert_eq!(scenario.tasks[0].arrival, Arrival::Once { count: 1 });
}

fn program(text: &str) -> Arc<Program> {
    of_text(&with_tasks(&format!("group = \"g\"\nprogram = [{text}]"))).unwrap().tasks.remove(0).program
}

#[test]
fn the_longest_poll_is_between_points_that_give_way() {
    let micros = |n| Some(Duration::from_micros(n));
    let cases = [
        ("{ run = \"5us\" }", micros(5)),
        ("{ run = \"5us\" }, \"yield\", { run = \"7us\" }", micros(7)),
        ("{ run = \"5us\" }, { run = \"7us\" }", micros(12)),
        ("{ repeat = { times = 3, program = [{ run = \"5us\" }] } }", micros(15)),
        ("{ repeat = { times = 3, program = [{ run = \"5us\" }, \"yield\", { run = \"2us\" }] } }", micros(7)),
        ("{ repeat = { program = [{ run = \"5us\" }, \"yield\", { run = \"2us\" }] } }", micros(7)),
        ("{ repeat = { program = [{ run = \"5us\" }] } }", None),
        ("\"yield\", { spawn = { program = [{ run = \"9us\" }] } }, { run = \"2us\" }", micros(9)),
        ("{ polls = { run = \"7us\", each = \"2us\" } }, { run = \"4us\" }", micros(6)),
        ("{ polls = { run = { exponential = \"7us\" }, each = \"2us\" } }, { run = \"4us\" }", micros(6)),
        ("{ repeat = { program = [{ polls = { run = { exponential = \"7us\" }, each = \"2us\" } }] } }", None),
        ("{ repeat = { program = [{ polls = { run = \"7us\", each = \"2us\" } }] } }", micros(4)),
        ("{ repeat = { on = \"1ms\", off = \"1ms\", program = [{ run = \"5us\" }, \"yield\"] } }", micros(5)),
        ("{ repeat = { on = \"1ms\", off = \"1ms\", program = [{ run = \"5us\" }] } }", None),
        ("{ run = { uniform = [\"1us\", \"4us\"] } }, { wait = \"x\" }, { run = \"1us\" }", micros(5)),
    ];
    for (text, expected) in cases {
        assert_eq!(program(text).longest_poll(), expected, "{text}");
    }
}

#[test]
fn planned_work_is_the_sum_of_the_runs() {
    let rng = || fastrand::Rng::with_seed(1);
    let plan = |text| program(text).planned_work(rng());
    assert_eq!(plan("{ run = \"5us\" }, \"yield\", { run = \"7us\" }"), Some(Duration::from_micros(12)));
    let loops =
        "{ repeat = { times = 3, program = [{ repeat = { times = 4, program = [{ run = \"1us\" }] } }, \"yield\"] } }";
    assert_eq!(plan(loops), Some(Duration::from_micros(12)));
    assert_eq!(plan("{ repeat = { times = 100000, program = [{ run = \"1us\" }] } }"), None);
    assert!(program(loops).only_computes());
    assert!(!program("{ sleep = \"1us\" }").only_computes());
}

#[test]
fn bursts_are_what_comes_between_two_sleeps() {
    let micros = |n| Some(Duration::from_micros(n));
    let repeated = |steps| program(&format!("{{ run = \"3us\" }}, {{ repeat = {{ program = [{steps}] }} }}"));
    let burst = |program: &Program, from| program.planned_burst(from, fastrand::Rng::with_seed(1));
    let two = repeated(
        "{ run = \"5us\" }, \"yield\", { run = \"7us\" }, { sleep = \"1ms\" }, { run = \"2us\" }, { sleep = \"2ms\" }",
    );
    assert_eq!((two.mean_burst(), burst(&two, 0)), (micros(15), micros(15)));
    let after = |n: usize| {
        let sleeps = two.ops().iter().enumerate().filter(|(_, op)| matches!(op, Op::Sleep(_)));
        sleeps.map(|(index, _)| index + 1).nth(n).unwrap()
    };
    assert_eq!((burst(&two, after(0)), burst(&two, after(1))), (micros(2), micros(12)));
    let drawn = repeated(
        "{ polls = { run = { exponential = \"1ms\" }, each = \"50us\" } }, { sleep = { exponential = \"4ms\" } }",
    );
    assert_eq!(drawn.mean_burst(), micros(1_003));
    let run = Time::Exponential { mean: Duration::from_millis(1) }.draw(&mut fastrand::Rng::with_seed(1));
    assert_eq!(burst(&drawn, 0), Some(run + Duration::from_micros(3)));
    // Nothing is known beforehand of what waits for others, of counted rounds, or of what never sleeps.
    for steps in [
        "{ run = \"5us\" }, { sleep = \"1ms\" }, { wait = \"x\" }",
        "{ repeat = { times = 2, program = [{ run = \"5us\" }, { sleep = \"1ms\" }] } }",
        "{ run = \"5us\" }, \"yield\"",
        "{ sleep = \"5us\" }, { repeat = { program = [\"yield\"] } }",
    ] {
        assert_eq!(repeated(steps).mean_burst(), None, "{steps}");
    }
}

#[test]
fn members_of_a_family_differ_in_rank_only() {
    let text = r#"
        [[groups]]
        name = "first"
        [[groups]]
        name = "t-#-x"
        count = 4
        weight = { zipf = 10 }
        [[tasks]]
        group = "t-#-x"
        count = { zipf = 3.5 }
        program = ["yield"]
        [[tasks]]
        group = "t-2-x"
        arrival = { closed = { clients = 7 } }
        program = ["yield"]
        [expect.threads]
        "t-#-x.share_error" = { max = 0.25 }
        "t-2-x.share_error" = { min = 0 }
    "#;
    let scenario = of_text(text).unwrap();
    let groups: Vec<(&str, u32)> = scenario.groups.iter().map(|group| (group.name.as_str(), group.weight)).collect();
    assert_eq!(groups, [("first", 100), ("t-1-x", 10), ("t-2-x", 5), ("t-3-x", 3), ("t-4-x", 3)]);
    let sets: Vec<(usize, &Arrival)> = scenario.tasks.iter().map(|set| (set.group.0, &set.arrival)).collect();
    let once = [4, 2, 2, 1].map(|count| Arrival::Once { count });
    let closed = Arrival::Closed { clients: 7, think: None };
    assert_eq!(sets, [(1, &once[0]), (2, &once[1]), (3, &once[2]), (4, &once[3]), (2, &closed)]);
    let bounds: Vec<&str> = scenario.expect.iter().map(|bound| bound.metric.pointer()).collect();
    let of = |n: u32| format!("/groups/t-{n}-x/share_error");
    assert_eq!(bounds, [of(1), of(2), of(3), of(4), of(2)]);
}

#[test]
fn an_exit_ends_an_endless_repeat() {
    assert!(!program("{ repeat = { program = [\"yield\"] } }").ends());
    assert!(program("{ repeat = { program = [\"yield\", \"exit\"] } }").ends());
}

/// The names of the scenarios in a folder of the repository, each of which must be one.
fn names_in(folder: &str) -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            continue;
        }
        let scenario = read(&path).unwrap_or_else(|failure| panic!("{failure}"));
        assert!(scenario.groups.iter().all(|group| scenario.group(&group.name).is_some()));
        names.push(scenario.name);
    }
    names.sort();
    names
}

#[test]
fn shipped_scenarios_are_what_they_say() {
    let expected = [
        "infeasible",
        "long-polls",
        "noisy-neighbour",
        "pinned-hog-and-newcomer",
        "tenants-zipf",
        "tenants-zipf-equal",
        "weights-2",
        "weights-5",
        "yielders",
    ];
    assert_eq!(names_in("scenarios"), expected);
    let clocks = [
        "closed-loop-16",
        "closed-loop-64",
        "five-weights-4",
        "five-weights-64",
        "interactive-64",
        "on-off-10ms-4",
        "on-off-10ms-64",
        "ones-tens",
        "quiet-4",
        "zipf-weights-few",
        "zipf-weights-many",
    ];
    assert_eq!(names_in("scenarios/clocks"), clocks);
}

fn shipped(name: &str) -> Scenario {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    read(&folder.join(format!("{name}.toml"))).unwrap_or_else(|failure| panic!("{failure}"))
}

#[test]
fn noisy_neighbour_and_long_polls_are_the_main_job() {
    for (name, count, poll, batch_work) in
        [("noisy-neighbour", 10_000, 100, 5_000), ("long-polls", 20_000, 1_000, 1_000)]
    {
        let scenario = shipped(name);
        let [batch, quiet] = &scenario.groups[..] else { panic!("two groups") };
        assert_eq!((batch.name.as_str(), batch.role), ("batch", Role::Batch));
        assert_eq!((quiet.name.as_str(), quiet.role), ("quiet", Role::Interactive));
        assert_eq!(batch.weight, quiet.weight);
        assert_eq!(scenario.tasks[0].arrival, Arrival::Once { count });
        let work = |set: &TaskSet| set.program.planned_work(fastrand::Rng::with_seed(1));
        assert_eq!(work(&scenario.tasks[0]), Some(Duration::from_micros(batch_work)));
        assert_eq!(scenario.tasks[1].arrival, Arrival::Open { per_second: 200.0, spacing: Spacing::Poisson, count: 1 });
        assert_eq!(work(&scenario.tasks[1]), Some(Duration::from_micros(100)));
        assert_eq!(scenario.longest_poll(), Some(Duration::from_micros(poll)));
    }
}

#[test]
fn tenants_have_zipf_clients() {
    for (name, quiet) in [("tenants-zipf", 8), ("tenants-zipf-equal", 1)] {
        let scenario = shipped(name);
        assert_eq!(scenario.groups.len(), 101);
        for k in 1..=100u32 {
            let group = scenario.group(&format!("t{k}")).unwrap();
            assert_eq!(scenario.groups[group.0].weight, 1);
            let set = scenario.tasks.iter().find(|set| set.group == group).unwrap();
            assert_eq!(set.arrival, Arrival::Closed { clients: 100u32.div_ceil(k), think: None });
            assert_eq!(set.program.planned_work(fastrand::Rng::with_seed(1)), Some(Duration::from_micros(200)));
        }
        let group = scenario.group("quiet").unwrap();
        assert_eq!(scenario.groups[group.0].weight, quiet);
    }
}

#[test]
fn the_sample_in_the_documentation_is_a_scenario() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/scenarios.md");
    let page = std::fs::read_to_string(page).unwrap();
    let samples: Vec<&str> = page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(!samples.is_empty());
    for sample in samples {
        of_text(sample).unwrap_or_else(|failure| panic!("{failure}\n{sample}"));
    }
}

#[test]
fn cpus_are_those_of_the_group_that_the_tasks_may_use() {
    let text = r#"
        [[groups]]
        name = "wide"
        cpus = "0-3"
        [[groups]]
        name = "split"
        [[groups]]
        name = "mixed"
        [[tasks]]
        group = "wide"
        cpus = "2-9"
        program = ["yield", { spawn = { program = ["yield"] } }]
        [[tasks]]
        group = "split"
        cpus = [1]
        program = ["yield"]
        [[tasks]]
        group = "split"
        cpus = "3"
        program = ["yield"]
        [[tasks]]
        group = "mixed"
        cpus = "3"
        program = ["yield"]
        [[tasks]]
        group = "mixed"
        program = ["yield"]
    "#;
    let scenario = of_text(text).unwrap();
    let sets: Vec<_> = scenario.tasks.iter().map(|set| set.cpus.as_ref().map(ToString::to_string)).collect();
    assert_eq!(sets, [Some("2-3"), Some("1"), Some("3"), Some("3"), None].map(|text| text.map(ToOwned::to_owned)));
    // What the tasks of `wide` spawn may run wherever the group may.
    let of_groups = (0..3).map(|index| scenario.cpus_of(GroupIndex(index)).map(|cpus| cpus.to_string()));
    assert_eq!(of_groups.collect::<Vec<_>>(), [Some("0-3".to_owned()), Some("1,3".to_owned()), None]);
    assert_eq!((scenario.has_masks(), scenario.last_cpu()), (true, Some(CpuId::new(3))));
}

#[test]
fn more_masks_than_the_yardstick_can_tell_apart_are_refused() {
    let group = |index: u32| format!("[[groups]]\nname = \"g{index}\"\ncpus = [{index}]\n");
    let text = |count: u32| {
        let groups: String = (0..count).map(group).collect();
        groups + "[[tasks]]\ngroup = \"g0\"\nprogram = [\"yield\"]\n"
    };
    assert!(of_text(&text(8)).is_ok());
    assert!(message(&text(9)).contains("9 different masks"));
}
