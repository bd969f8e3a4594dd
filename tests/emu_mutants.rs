//! Mutants of the real kernels: a fault is planted in the machine that they run on, and the emulator must report it under
//! its right name, under every schedule, and say who, where and at which barrier or word.

use std::collections::BTreeMap;

use tilewire::emulator::{EmulatorError, EmulatorOptions, Fault};
use tilewire::mutants::{MUTANTS, Mutant};

/// Schedules under which each fault must be found.
const SEEDS: u64 = 16;

/// What is wrong with a report, if anything.
fn complaint(mutant: &Mutant, error: &EmulatorError) -> Option<String> {
    if !mutant.expected.contains(&error.violation) {
        return Some(format!("reported as {error}"));
    }
    let text = error.to_string();
    let roles = ["setup", "producer", "storer", "loader", "consumer", "leave"];
    let names_role = text.contains(" CTA ") && roles.iter().any(|role| text.contains(role));
    let names_what = ["barrier", "word", "signal", "bytes", "accumulator", "bulk stores", " + "];
    if !names_role || !names_what.iter().any(|what| text.contains(what)) {
        return Some(format!("does not say who or where: {text}"));
    }
    None
}

/// The reports of one mutant, by name; or what was wrong with one.
fn reports(mutant: &Mutant) -> Result<BTreeMap<&'static str, u64>, String> {
    let mut found = BTreeMap::new();
    for seed in 0..SEEDS {
        let outcome = mutant.run(seed).map_err(|e| format!("seed {seed}: {e}"))?;
        let Some(error) = outcome.violation else { return Err(format!("seed {seed}: not found")) };
        if let Some(complaint) = complaint(mutant, &error) {
            return Err(format!("seed {seed}: {complaint}"));
        }
        *found.entry(error.violation.name()).or_insert(0) += 1;
    }
    Ok(found)
}

#[test]
fn every_mutant_is_found_under_its_name_by_every_schedule() {
    let mut wrong = Vec::new();
    for mutant in MUTANTS {
        let s = &mutant.scenario;
        let way = format!("{:?} {:?}/{:?}, world {}", s.kernel, s.transport, s.placement, s.world);
        match reports(mutant) {
            Ok(found) => {
                let found: Vec<_> = found.iter().map(|(name, times)| format!("{name} {times}")).collect();
                println!("{:26} {way:54} {}", mutant.plant.fault.name(), found.join(", "));
            }
            Err(complaint) => wrong.push(format!("{} ({way}): {complaint}", mutant.plant.fault)),
        }
    }
    assert!(wrong.is_empty(), "{} of {} mutants:\n{}", wrong.len(), MUTANTS.len(), wrong.join("\n"));
}

#[test]
fn without_its_fault_every_mutant_is_right() {
    let mut seen = Vec::new();
    for mutant in MUTANTS {
        if seen.contains(&mutant.scenario) {
            continue;
        }
        seen.push(mutant.scenario);
        for seed in 0..SEEDS {
            let outcome = mutant.scenario.run(EmulatorOptions::with_seed(seed), None).unwrap();
            assert_eq!(outcome.violation, None, "{:?}, seed {seed}", mutant.scenario);
            assert!(outcome.d.iter().flatten().all(|x| x.is_finite()), "{:?}, seed {seed}", mutant.scenario);
        }
    }
}

#[test]
fn every_fault_has_a_mutant_and_two_names_have_a_reason() {
    for fault in Fault::ALL {
        assert!(Mutant::of(*fault).is_some(), "{fault} is never planted");
    }
    for mutant in MUTANTS {
        assert_eq!(mutant.expected.len() > 1, !mutant.why.is_empty(), "{}", mutant.plant.fault);
    }
}

#[test]
fn a_fault_elsewhere_changes_nothing() {
    let mutant = Mutant::of(Fault::EarlySignal).unwrap();
    for plant in [mutant.plant.on_rank(7), mutant.plant.on_cta(9), mutant.plant.in_call(3), mutant.plant.after(1000)] {
        let outcome = mutant.scenario.run(EmulatorOptions::with_seed(1), Some(plant)).unwrap();
        assert_eq!(outcome.violation, None, "{plant:?}");
    }
}
