use super::*;
use evenkeel_core::CpuId;
use proptest::prelude::*;

#[test]
fn every_preset_is_a_machine_of_its_name() {
    let cpus = [4, 16, 64, 256, 48, 80, 224, 256, 1_024];
    for ((name, _), cpus) in PRESETS.iter().zip(cpus) {
        let machine = Machine::named(name).unwrap();
        assert_eq!((machine.name.as_str(), machine.cpus()), (*name, cpus));
    }
}

#[test]
fn the_two_socket_xeon_has_its_even_cpus_on_node_0() {
    let machine = Machine::named("xeon-e5-2650v4-2s").unwrap();
    assert!((0..48).all(|cpu| machine.topology.place(CpuId::new(cpu)).node == cpu % 2));
}

/// CPUs, and how many sockets, caches and CPUs per core there are.
fn shape(name: &str) -> [usize; 4] {
    let topology = Machine::named(name).unwrap().topology;
    let count = |part: fn(Place) -> u32| {
        let parts: std::collections::BTreeSet<_> =
            (0..u32::try_from(topology.cpus()).unwrap()).map(|cpu| part(topology.place(CpuId::new(cpu)))).collect();
        parts.len()
    };
    [
        topology.cpus(),
        count(|place| place.socket),
        count(|place| place.cache),
        topology.cpus() / count(|place| place.core),
    ]
}

#[test]
fn presets_have_the_shape_of_their_machines() {
    for (name, cpus) in [("flat-4", 4), ("flat-16", 16), ("flat-64", 64), ("flat-256", 256)] {
        assert_eq!(shape(name), [cpus, 1, 1, 1], "{name}");
    }
    assert_eq!(shape("xeon-e5-2650v4-2s"), [48, 2, 2, 2]);
    assert_eq!(shape("xeon-80t-2s"), [80, 2, 2, 2]);
    assert_eq!(shape("spr-224"), [224, 2, 2, 2]);
    assert_eq!(shape("epyc-rome-256"), [256, 2, 32, 2]);
    assert_eq!(shape("big-1024"), [1_024, 8, 64, 2]);
}

#[test]
fn every_figure_of_a_preset_has_its_source_or_is_called_an_estimate() {
    // A machine that is sold is its own source for where its CPUs are; transfers have one source for all of them, above.
    let stated = [
        "estimate",
        "interpolated",
        "core-to-core-latency",
        "pallipadi",
        "linux",
        "measured",
        "common to x86",
        "us from",
        "hz =",
        "what parking_lot is",
    ];
    for (name, text) in PRESETS {
        let (mut section, mut above) = (String::new(), String::new());
        for (number, line) in text.lines().enumerate() {
            let is_heading = line.starts_with('[');
            if is_heading {
                section = line.to_owned();
            } else if line.starts_with('#') {
                above += &line.to_lowercase();
                continue;
            }
            if line.contains('=') && section != "[topology]" {
                let comment = line.split_once('#').map(|(_, comment)| comment.to_lowercase()).unwrap_or_default();
                let said = if section == "[transfer_ns]" { format!("{above}{comment}") } else { comment };
                assert!(stated.iter().any(|word| said.contains(word)), "{name}.toml:{}: {line}", number + 1);
            }
            if line.is_empty() {
                above.clear();
            }
        }
    }
}

fn error_of(change: impl Fn(&str) -> String) -> String {
    Machine::parse("m.toml", &change(presets::FLAT_4)).unwrap_err().to_string()
}

#[test]
fn errors_name_the_file_the_line_and_what_was_expected() {
    let line = |text: &str, what: &str| 1 + text.lines().position(|line| line.starts_with(what)).unwrap();
    let at = line(presets::FLAT_4, "hit");
    assert_eq!(
        error_of(|text| text.replace("hit = 1 ", "hit = -1 ")),
        format!("m.toml:{at}: hit = -1, expected 1 to 100000000")
    );
    let at = line(presets::FLAT_4, "sockets");
    let many = error_of(|text| text.replace("sockets = 1", "sockets = 1000"));
    assert_eq!(many, format!("m.toml:{at}: 4000 CPUs in all, expected 1 to 1024"));
    let at = line(presets::FLAT_4, "node =");
    let nearer = error_of(|text| text.replace("node = 45", "node = 44"));
    assert_eq!(nearer, format!("m.toml:{at}: node = 44, expected 45 to 100000000: no less than what is nearer"));
    let at = line(presets::FLAT_4, "[idle]") + 2;
    let half = error_of(|text| text.replace("deep_exit_ns", "# "));
    assert_eq!(half, format!("m.toml:{at}: deep_after_us and deep_exit_ns belong together, expected both or none"));
    let unknown = error_of(|text| text.replace("atomic =", "atomics ="));
    assert!(unknown.starts_with("m.toml:") && unknown.contains("atomics"), "{unknown}");
    let at = line(presets::FLAT_4, "handler_ns");
    let busy = error_of(|text| text.replace("handler_ns = 1500", "handler_ns = 1000000"));
    assert!(busy.starts_with(&format!("m.toml:{at}: handler_ns = 1000000")), "{busy}");
}

#[test]
fn an_unknown_name_is_told_what_there_is() {
    let error = Machine::named("pdp-11").unwrap_err().to_string();
    assert!(error.starts_with("no machine `pdp-11`, expected host, flat-4, "), "{error}");
    let error = Machine::named("./no-such-file.toml").unwrap_err().to_string();
    assert!(error.starts_with("./no-such-file.toml:1: can't read the machine"), "{error}");
}

/// A copy of `/sys` with these files.
fn tree(name: &str, files: &[(String, String)]) -> std::path::PathBuf {
    let root = std::env::temp_dir().join(format!("evenkeel-sim-{name}-{}", std::process::id()));
    for (path, text) in files {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    root
}

#[test]
fn the_host_is_what_sys_says() {
    let mut files = vec![
        ("devices/system/cpu/online".to_owned(), "0-3\n".to_owned()),
        ("devices/system/node/online".to_owned(), "0-1\n".to_owned()),
    ];
    for cpu in 0..4 {
        let folder = format!("devices/system/cpu/cpu{cpu}");
        let socket = cpu % 2;
        files.push((format!("{folder}/topology/physical_package_id"), format!("{socket}\n")));
        files.push((format!("{folder}/topology/core_id"), "0\n".to_owned()));
        files.push((format!("{folder}/cache/index0/level"), "1\n".to_owned()));
        files.push((format!("{folder}/cache/index0/shared_cpu_list"), format!("{cpu}\n")));
        files.push((format!("{folder}/cache/index3/level"), "3\n".to_owned()));
        files.push((format!("{folder}/cache/index3/shared_cpu_list"), format!("{socket},{}\n", socket + 2)));
    }
    for node in 0..2 {
        files.push((format!("devices/system/node/node{node}/cpulist"), format!("{node},{}\n", node + 2)));
    }
    let root = tree("host", &files);
    let machine = Machine::of_host(&root);
    std::fs::remove_dir_all(&root).unwrap();
    let topology = machine.unwrap().topology;
    let distance = |one, other| topology.distance(CpuId::new(one), CpuId::new(other));
    assert_eq!((distance(0, 2), distance(0, 1)), (Distance::Sibling, Distance::Machine));
    assert_eq!(topology.place(CpuId::new(3)).node, 1);
}

#[test]
fn a_sys_that_makes_no_sense_is_an_error() {
    let root = tree("odd", &[("devices/system/cpu/online".to_owned(), "0-99999999".to_owned())]);
    let error = Machine::of_host(&root).unwrap_err().to_string();
    std::fs::remove_dir_all(&root).unwrap();
    assert!(error.ends_with("online:1: `0-99999999`, expected a list of CPUs"), "{error}");
}

#[test]
fn this_computer_is_a_machine() {
    // Not everywhere is there a /sys; where there is, it must be understood.
    if Path::new("/sys/devices/system/cpu/cpu0/topology").exists() {
        assert!(Machine::named("host").unwrap().cpus() > 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_text_gives_a_machine_or_an_error_with_a_line(text in "\\PC{0,400}") {
        if let Err(error) = Machine::parse("m.toml", &text) {
            prop_assert!(error.to_string().starts_with("m.toml:"));
        }
    }

    #[test]
    fn any_number_anywhere_gives_a_machine_or_an_error(
        place in 0_usize..31,
        number in prop_oneof![any::<i64>(), -2_i64..2_000],
    ) {
        let mut seen = 0;
        let lines = presets::FLAT_4.lines().map(|line| match line.split_once(" = ") {
            Some((key, _)) if !line.starts_with('#') => {
                seen += 1;
                if seen - 1 == place { format!("{key} = {number}") } else { line.to_owned() }
            }
            _ => line.to_owned(),
        });
        let text = lines.collect::<Vec<_>>().join("\n");
        match Machine::parse("m.toml", &text) {
            Ok(machine) => prop_assert!((1..=CPUS_MAX).contains(&machine.cpus())),
            Err(error) => prop_assert!(error.to_string().starts_with("m.toml:")),
        }
    }
}
