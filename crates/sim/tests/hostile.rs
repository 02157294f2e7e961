//! Machine files and copies of /sys that somebody made up: an error that names the place, or a machine that runs. Never a
//! panic, nor anything without end.

#![expect(clippy::unwrap_used, reason = "what goes wrong fails the test")]

mod common;

use common::us;
use evenkeel_core::{CpuId, Time};
use evenkeel_engine::api;
use evenkeel_sim::machine::{CPUS_MAX, Machine, PRESETS};
use evenkeel_sim::{Config, Faults, Preemption, Simulation};
use proptest::prelude::*;
use proptest::sample::Index;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What stands where a number should.
const VALUES: [&str; 33] = [
    "0",
    "1",
    "2",
    "3",
    "7",
    "1000",
    "1024",
    "1025",
    "1000000",
    "-1",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "99999999999999999999999",
    "0x7fff_ffff_ffff_ffff",
    "0o777",
    "1_000",
    "1.5",
    "1e308",
    "-0.0",
    "nan",
    "-nan",
    "inf",
    "-inf",
    "true",
    "\"\"",
    "\"fifo\"",
    "'threads-last'",
    "[]",
    "[1, 2]",
    "{}",
    "{ a = 1 }",
    "1979-05-27T07:32:00Z",
];

/// What is done to a machine file.
#[derive(Clone, Debug)]
enum Change {
    Value(Index, Index),
    Drop(Index),
    Repeat(Index, Index),
    Rename(Index, String),
    Insert(Index, String),
    Cut(Index),
    Byte(Index, char),
}

fn change() -> impl Strategy<Value = Change> {
    let index = any::<Index>;
    prop_oneof![
        4 => (index(), index()).prop_map(|(line, value)| Change::Value(line, value)),
        1 => index().prop_map(Change::Drop),
        1 => (index(), index()).prop_map(|(from, to)| Change::Repeat(from, to)),
        1 => (index(), "[a-z_.\"\\[]{0,9}").prop_map(|(line, name)| Change::Rename(line, name)),
        1 => (index(), "\\PC{0,30}").prop_map(|(line, text)| Change::Insert(line, text)),
        1 => index().prop_map(Change::Cut),
        2 => (index(), any::<char>()).prop_map(|(place, char)| Change::Byte(place, char)),
    ]
}

fn changed(text: &str, changes: &[Change]) -> String {
    let mut text = text.to_owned();
    for change in changes {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        if lines.is_empty() {
            return text;
        }
        let count = lines.len();
        match change {
            Change::Value(line, value) => {
                // A line that has a value.
                let with: Vec<_> = (0..count).filter(|line| lines[*line].contains('=')).collect();
                if !with.is_empty() {
                    let line = &mut lines[*line.get(&with)];
                    let (key, _) = line.split_once('=').unwrap();
                    *line = format!("{key}= {}", value.get(&VALUES));
                }
            }
            Change::Drop(line) => drop(lines.remove(line.index(count))),
            Change::Repeat(from, to) => lines.insert(to.index(count), lines[from.index(count)].clone()),
            Change::Rename(line, name) => {
                let line = &mut lines[line.index(count)];
                *line = format!("{name} {}", line.split_once(' ').map_or("", |(_, rest)| rest));
            }
            Change::Insert(line, text) => lines.insert(line.index(count), text.clone()),
            Change::Cut(line) => lines.truncate(line.index(count)),
            Change::Byte(place, char) => {
                let mut chars: Vec<char> = text.chars().collect();
                let place = place.index(chars.len().max(1));
                if let Some(old) = chars.get_mut(place) {
                    *old = *char;
                }
                text = chars.into_iter().collect();
                continue;
            }
        }
        text = lines.join("\n");
    }
    text
}

/// A machine, or an error that names a line that is there.
fn check(text: &str, parsed: Result<Machine, evenkeel_sim::machine::MachineError>) {
    match parsed {
        Ok(machine) => {
            assert!((1..=CPUS_MAX).contains(&machine.cpus()));
            let last = CpuId::new(u32::try_from(machine.cpus()).unwrap() - 1);
            assert!(machine.topology.distance(CpuId::new(0), last) as usize <= 5);
        }
        Err(error) => {
            let error = error.to_string();
            let rest = error.strip_prefix("m.toml:").unwrap_or_else(|| panic!("{error}"));
            let (line, what) = rest.split_once(": ").unwrap_or_else(|| panic!("{error}"));
            let line: usize = line.parse().unwrap_or_else(|_| panic!("{error}"));
            assert!(line >= 1 && line <= text.matches('\n').count() + 1, "{error}");
            assert!(!what.is_empty() && !what.contains('\n'), "{error}");
        }
    }
}

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) }
}

proptest! {
    #![proptest_config(cases(1_000))]

    #[test]
    fn changed_files_give_a_machine_or_an_error_with_a_line(
        preset in any::<Index>(),
        changes in prop::collection::vec(change(), 1..6),
    ) {
        let text = changed(preset.get(&PRESETS).1, &changes);
        check(&text, Machine::parse("m.toml", &text));
    }

    #[test]
    fn keys_and_values_by_chance_give_an_error_with_a_line(
        parts in prop::collection::vec("(\\[(topology|cost_ns|lock|idle|tick|work|transfer_ns|x)\\]|[a-z_]{1,8} = ([0-9]{1,20}|\"[a-z]*\"|[-+.a-z0-9\\[\\]{},'\"]{0,12}))", 0..30),
    ) {
        let text = parts.join("\n");
        check(&text, Machine::parse("m.toml", &text));
    }
}

#[test]
fn errors_say_what_was_expected() {
    let flat = PRESETS[0].1;
    let error = |from: &str, to: &str| {
        assert!(flat.contains(from));
        Machine::parse("m.toml", &flat.replace(from, to)).unwrap_err().to_string()
    };
    for (from, to, expected) in [
        ("cores_per_cache = 4", "cores_per_cache = 1000000", "expected 1 to 1024"),
        ("cores_per_cache = 4", "cores_per_cache = 0", "expected 1 to 1024"),
        ("cores_per_cache = 4", "cores_per_cache = 18446744073709551615", "18446744073709551615"),
        ("cores_per_cache = 4", "cores_per_cache = nan", "floating point `NaN`, expected i64"),
        ("cores_per_cache = 4", "cores_per_cache = 4.0", "floating point `4.0`, expected i64"),
        ("threads_per_core = 1", "threads_per_core = 4", "expected 1 to 2"),
        ("numbering = \"threads-last\"", "numbering = \"random\"", "expected one of `threads-last`"),
        ("numbering = \"threads-last\"", "numbering = \"threads-last\"\nnumbering = \"threads-last\"", "duplicate key"),
        ("[idle]", "[idle]\nsleep = 1", "unknown field `sleep`, expected one of"),
        ("[idle]", "[idles]", "unknown field `idles`, expected one of"),
        ("handler_ns = 1500", "handler_ns = 999999", "expected at most half of the period"),
        ("period_us = 1000 ", "period_us = 0 ", "expected 1 to 10000000"),
        ("kind = \"barging\"", "kind = \"spin\"", "expected `fifo` or `barging`"),
        ("timer_set = 150 ", "# ", "missing field `timer_set`"),
        ("clock_read = 10 ", "clock_read = 0 ", "expected 1 to 100000000"),
        ("hit = 1 ", "hit = 0 ", "expected 1 to 100000000"),
    ] {
        let error = error(from, to);
        assert!(error.starts_with("m.toml:") && error.contains(expected), "{to}: {error}");
    }
}

#[test]
fn nesting_without_end_is_an_error() {
    for open in ["[", "{ a = ", "a."] {
        let text = format!("topology = {}", open.repeat(100_000));
        check(&text, Machine::parse("m.toml", &text));
        assert!(Machine::parse("m.toml", &text).is_err());
    }
}

/// A folder that is gone when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("evenkeel-hostile-{name}-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn files_that_are_no_machine_files_are_errors() {
    let folder = Folder::new("files");
    let error = |path: &Path| Machine::read(path).unwrap_err().to_string();
    assert!(error(&folder.0).contains("can't read the machine"));
    std::fs::write(folder.0.join("bytes.toml"), [b'a', b'\n', 0xff, 0xfe]).unwrap();
    assert!(error(&folder.0.join("bytes.toml")).ends_with("bytes.toml:2: not UTF-8, expected TOML text"));
    std::fs::write(folder.0.join("large.toml"), vec![b'\n'; 2 << 20]).unwrap();
    assert!(error(&folder.0.join("large.toml")).contains("expected a machine file of at most"));
    #[cfg(unix)]
    {
        let looped = folder.0.join("loop.toml");
        std::os::unix::fs::symlink(&looped, &looped).unwrap();
        assert!(error(&looped).contains("can't read the machine"));
        if Path::new("/dev/zero").exists() {
            assert!(error(Path::new("/dev/zero")).contains("expected a machine file of at most"));
        }
    }
}

/// A valid copy of /sys: four CPUs in two cores of two nodes.
fn sys(name: &str) -> (Folder, Vec<String>) {
    let folder = Folder::new(name);
    let mut files = vec![
        ("devices/system/cpu/online".to_owned(), "0-3\n".to_owned()),
        ("devices/system/node/online".to_owned(), "0-1\n".to_owned()),
    ];
    for node in 0..2 {
        files.push((format!("devices/system/node/node{node}/cpulist"), format!("{node},{}\n", node + 2)));
    }
    for cpu in 0..4 {
        let (at, node) = (format!("devices/system/cpu/cpu{cpu}"), cpu % 2);
        files.push((format!("{at}/topology/physical_package_id"), format!("{node}\n")));
        files.push((format!("{at}/topology/core_id"), "0\n".to_owned()));
        files.push((format!("{at}/cache/index0/level"), "1\n".to_owned()));
        files.push((format!("{at}/cache/index0/shared_cpu_list"), format!("{node},{}\n", node + 2)));
        files.push((format!("{at}/cache/index3/level"), "3\n".to_owned()));
        files.push((format!("{at}/cache/index3/shared_cpu_list"), format!("{node},{}\n", node + 2)));
    }
    files.iter().for_each(|(path, text)| folder.write(path, text));
    (folder, files.into_iter().map(|(path, _)| path).collect())
}

fn host_error(root: &Path) -> String {
    let error = Machine::of_host(root).unwrap_err().to_string();
    assert!(error.starts_with(&root.display().to_string()) && error.contains(":1: "), "{error}");
    error
}

const CPU: &str = "devices/system/cpu";

#[test]
fn a_sys_that_contradicts_itself_is_an_error() {
    for (path, text, expected) in [
        ("devices/system/cpu/online", "", "0 CPUs, expected 1 to 1024"),
        ("devices/system/cpu/online", "0-3,2", "expected a list of CPUs"),
        ("devices/system/cpu/online", "0,4294967295", "cpu4294967295/topology/physical_package_id:1: can't read it"),
        ("devices/system/cpu/online", "0-1000000", "expected a list of CPUs"),
        ("devices/system/cpu/online", "0-4", "cpu4/topology/physical_package_id:1: can't read it"),
        ("devices/system/cpu/cpu1/topology/core_id", "one", "core_id:1: `one`, expected a number"),
        ("devices/system/cpu/cpu1/topology/core_id", "99999999999", "expected a number"),
        ("devices/system/cpu/cpu1/topology/die_id", "x", "die_id:1: `x`, expected a number"),
        ("devices/system/cpu/cpu1/topology/physical_package_id", "0", "in cores of at most two"),
        ("devices/system/node/online", "0-1,x", "expected a list of CPUs"),
        ("devices/system/node/online", "0-2", "node2/cpulist:1: can't read it"),
        ("devices/system/node/node1/cpulist", "0,1,3", "CPU 0 is in node 0 too, expected it in one"),
        ("devices/system/cpu/cpu1/cache/index3/level", "three", "level:1: `three`, expected a number"),
        ("devices/system/cpu/cpu1/cache/index3/shared_cpu_list", "1-", "expected a list of CPUs"),
        ("devices/system/cpu/cpu1/cache/index3/shared_cpu_list", "3", "CPU 1 is not in the list"),
        ("devices/system/cpu/cpu2/cache/index3/shared_cpu_list", "2", "CPU 2 shares this cache, expected what"),
        ("devices/system/cpu/cpu3/cache/index3/shared_cpu_list", "0-3", "CPU 0 shares this cache, expected what"),
    ] {
        let (folder, _) = sys("odd");
        folder.write(path, text);
        let error = host_error(&folder.0);
        assert!(error.contains(expected), "{path} = {text}: {error}");
    }
}

#[test]
fn what_the_kernel_does_not_know_is_made_up() {
    let (folder, _) = sys("sparse");
    std::fs::remove_dir_all(folder.0.join("devices/system/node")).unwrap();
    for cpu in 0..4 {
        std::fs::remove_dir_all(folder.0.join(format!("{CPU}/cpu{cpu}/cache"))).unwrap();
        folder.write(&format!("{CPU}/cpu{cpu}/topology/physical_package_id"), "-1\n");
        folder.write(&format!("{CPU}/cpu{cpu}/topology/core_id"), &format!("{cpu}\n"));
    }
    let topology = Machine::of_host(&folder.0).unwrap().topology;
    assert_eq!((topology.cpus(), topology.sibling(CpuId::new(0))), (4, None));
    assert!((0..4).all(|cpu| topology.place(CpuId::new(cpu)).cache == 0));
    // CPUs that are offline have no folder `topology`.
    folder.write(&format!("{CPU}/online"), "1,3");
    std::fs::remove_dir_all(folder.0.join(format!("{CPU}/cpu0/topology"))).unwrap();
    assert_eq!(Machine::of_host(&folder.0).unwrap().cpus(), 2);
}

#[test]
fn dies_that_number_their_cores_alike_have_different_cores() {
    let (folder, _) = sys("dies");
    for cpu in 0..4 {
        folder.write(&format!("{CPU}/cpu{cpu}/topology/physical_package_id"), "0");
        folder.write(&format!("{CPU}/cpu{cpu}/topology/die_id"), &(cpu % 2).to_string());
    }
    let topology = Machine::of_host(&folder.0).unwrap().topology;
    assert_eq!(topology.sibling(CpuId::new(0)), Some(CpuId::new(2)));
}

#[test]
#[cfg(unix)]
fn files_without_end_and_links_in_circles_are_errors() {
    use std::os::unix::fs::symlink;
    for (target, expected) in
        [("online", "can't read it"), ("/dev/zero", "not a plain file"), ("..", "not a plain file")]
    {
        let (folder, _) = sys("links");
        let online = folder.0.join(CPU).join("online");
        std::fs::remove_file(&online).unwrap();
        symlink(target, &online).unwrap();
        let error = host_error(&folder.0);
        assert!(error.contains(expected), "{target}: {error}");
    }
    let (folder, _) = sys("pipe");
    let core = folder.0.join(CPU).join("cpu2/topology/core_id");
    std::fs::remove_file(&core).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&core).status();
    if made.is_ok_and(|status| status.success()) {
        assert!(host_error(&folder.0).contains("not a plain file"));
    }
    let (folder, _) = sys("large");
    folder.write(&format!("{CPU}/online"), &"0,".repeat(100_000));
    assert!(host_error(&folder.0).contains("more than 65536 bytes"));
    // The folder of a CPU that leads back to the folder of all CPUs.
    let (folder, _) = sys("circle");
    let cpu = folder.0.join(CPU).join("cpu1");
    std::fs::remove_dir_all(&cpu).unwrap();
    symlink(folder.0.join(CPU), &cpu).unwrap();
    assert!(host_error(&folder.0).contains("can't read it"));
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn a_changed_sys_gives_a_machine_or_an_error(
        changes in prop::collection::vec((any::<Index>(), prop_oneof![
            Just(None),
            "[0-9,\\-]{0,12}".prop_map(Some),
            "\\PC{0,12}".prop_map(Some),
        ]), 1..4),
    ) {
        let (folder, files) = sys("any");
        for (file, text) in &changes {
            let file = file.get(&files);
            match text {
                None => drop(std::fs::remove_file(folder.0.join(file))),
                Some(text) => folder.write(file, text),
            }
        }
        match Machine::of_host(&folder.0) {
            Ok(machine) => prop_assert!((1..=CPUS_MAX).contains(&machine.cpus())),
            Err(error) => prop_assert!(error.to_string().starts_with(&folder.0.display().to_string())),
        }
    }
}

/// A cost such as machines have.
fn usual_cost() -> BoxedStrategy<u64> {
    prop_oneof![4 => 1_u64..3_000, 1 => Just(1)].boxed()
}

/// A cost of any size that is allowed.
fn any_cost() -> BoxedStrategy<u64> {
    prop_oneof![2 => 1_u64..3_000, 1 => Just(1), 1 => 3_000_u64..10_000_000, 1 => Just(100_000_000)].boxed()
}

/// The text of a small machine.
fn small_machine(cost: fn() -> BoxedStrategy<u64>) -> impl Strategy<Value = String> {
    let shape = (1_u64..3, 1_u64..3, 1_u64..3, 1_u64..4, 1_u64..3);
    let names = (0_usize..3, any::<bool>());
    let transfers = (prop::collection::vec(cost(), 5), 1_u64..33);
    let costs = prop::collection::vec(cost(), 15);
    let rest = (1_u64..10_000, 0_u64..=500, 10_u64..=100, 100_u64..=1_000, 1_u64..2_000);
    (shape, names, transfers, costs, rest).prop_map(|(shape, names, (mut transfers, overlap), costs, rest)| {
        transfers.sort_unstable();
        let numbering = ["threads-last", "threads-adjacent", "interleaved-nodes"][names.0];
        let kind = if names.1 { "fifo" } else { "barging" };
        let (period, of_period, percent, permille, deep) = rest;
        let mut costs = costs.into_iter();
        let mut next = || costs.next().unwrap();
        [
            "[topology]".to_owned(),
            format!("sockets = {}\nnodes_per_socket = {}\ncaches_per_node = {}", shape.0, shape.1, shape.2),
            format!("cores_per_cache = {}\nthreads_per_core = {}\nnumbering = \"{numbering}\"", shape.3, shape.4),
            format!("[transfer_ns]\nsibling = {}\ncache = {}\nnode = {}", transfers[0], transfers[1], transfers[2]),
            format!(
                "socket = {}\nmachine = {}\nreads_overlap = {overlap}\nshared_read = {}",
                transfers[3],
                transfers[4],
                next()
            ),
            format!("[cost_ns]\nhit = {}\natomic = {}\nclock_read = {}", next(), next(), next()),
            format!("queue_operation = {}\nswitch = {}\nkick = {}\nkick_delivery = {}", next(), next(), next(), next()),
            format!("park = {}\ntimer_set = {}\ntimer_fire = {}", next(), next(), next()),
            format!("[lock]\nkind = \"{kind}\"\nuncontended_ns = {}\nhandover_ns = {}", next(), next()),
            format!("[idle]\nexit_ns = {}\ndeep_after_us = {deep}\ndeep_exit_ns = {}", next(), next()),
            format!("[tick]\nperiod_us = {period}\nhandler_ns = {}", period * of_period),
            format!("[work]\nbeside_busy_sibling_percent = {percent}\ngot_permille = {permille}"),
        ]
        .join("\n")
    })
}

const FAULTS: [&str; 2] = ["kick=1ns@0.0001%", "stall=exp:50us@900/s,holder=5us@5%,kick=20us@20%,tick=exp:50us@20%"];

/// A few tasks on a machine. How many have ended.
fn start(text: &str, seed: u64, preemption: Preemption, faults: Faults) -> (Simulation, Arc<AtomicU64>) {
    let machine = Machine::parse("m.toml", text).unwrap();
    let mut sim = Simulation::new(Config { seed, preemption, faults, ..Config::new(machine) }).unwrap();
    let ended = Arc::new(AtomicU64::new(0));
    sim.with(|handle| {
        for task in 0..TASKS {
            let ended = Arc::clone(&ended);
            drop(handle.spawn(async move {
                api::run(Duration::from_micros(20 * task)).await;
                api::sleep(Duration::from_micros(50)).await;
                api::yield_now().await;
                ended.fetch_add(1, Ordering::Relaxed);
            }));
        }
    });
    (sim, ended)
}

const TASKS: u64 = 6;

fn preemption() -> impl Strategy<Value = Preemption> {
    prop_oneof![Just(Preemption::BetweenPolls), Just(Preemption::AtTicks)]
}

proptest! {
    #![proptest_config(cases(100))]

    #[test]
    fn any_small_machine_does_its_work_and_stops(
        text in small_machine(usual_cost),
        seed: u64,
        preemption in preemption(),
        faults in prop::sample::select(&FAULTS[..]),
    ) {
        let (mut sim, ended) = start(&text, seed, preemption, faults.parse().unwrap());
        sim.run_until(Time::ZERO.after(us(100_000))).unwrap();
        prop_assert_eq!(ended.load(Ordering::Relaxed), TASKS);
        sim.stop().unwrap();
    }

    #[test]
    fn the_most_absurd_machine_runs_and_stops(
        text in small_machine(any_cost),
        seed: u64,
        preemption in preemption(),
        faults in prop::sample::select(&FAULTS[..]),
    ) {
        let (mut sim, _ended) = start(&text, seed, preemption, faults.parse().unwrap());
        // V3 is asserted at the end of each.
        for step in 1..=5 {
            sim.run_until(Time::ZERO.after(us(700 * step))).unwrap();
        }
        sim.stop().unwrap();
    }
}
