//! Summaries of repeated runs, and what may be said of two targets after them.
//!
//! Knows nothing of benchmarks, units or targets: plain figures of which a smaller one is better.

/// Pairs below which nothing is said: with two, one target is ahead in both every other time by chance alone.
const VERDICT_PAIRS_MIN: usize = 3;

/// Median and range of one or more figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Summary {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Summary {
    /// `None` if there is no figure to sum up.
    pub(super) fn of(values: &[f64]) -> Option<Self> {
        let sorted = sorted(values);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        Some(Self { median: middle(&sorted), min, max })
    }
}

/// The figure that `share` (0 to 1) of all figures do not exceed: an observed one, never interpolated.
pub(super) fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let sorted = sorted(values);
    let rank = (share.clamp(0.0, 1.0) * sorted.len() as f64).ceil();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the share is clamped, so the rank lies between 0 and the number of figures"
    )]
    let index = (rank as usize).saturating_sub(1);
    sorted.get(index).copied()
}

/// One run of each target, made right after one another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    pub(super) ours: f64,
    pub(super) theirs: f64,
}

impl Pair {
    /// Zips the runs of two targets; a run without a partner is left out.
    pub(super) fn zip(ours: &[f64], theirs: &[f64]) -> Vec<Self> {
        ours.iter().zip(theirs).map(|(&ours, &theirs)| Self { ours, theirs }).collect()
    }

    fn ratio(self) -> Option<f64> {
        (self.theirs > 0.0).then(|| self.ours / self.theirs)
    }
}

/// Ours divided by theirs, pair by pair; `None` if a divisor is zero, since the rest alone would mislead.
pub(super) fn ratios(pairs: &[Pair]) -> Option<Vec<f64>> {
    pairs.iter().map(|pair| pair.ratio()).collect()
}

/// What the pairs say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Smaller in every pair.
    Better,
    /// Smaller or equal in some pairs, larger in others.
    NotWorse,
    /// Larger in every pair.
    Worse,
    /// Too few pairs to say.
    TooFew,
}

impl Verdict {
    /// Compares pair by pair, not median by median: what else goes on in the machine hits both runs of a pair.
    pub(super) fn of(pairs: &[Pair]) -> Self {
        if pairs.len() < VERDICT_PAIRS_MIN {
            Self::TooFew
        } else if pairs.iter().all(|pair| pair.ours < pair.theirs) {
            Self::Better
        } else if pairs.iter().all(|pair| pair.ours > pair.theirs) {
            Self::Worse
        } else {
            Self::NotWorse
        }
    }

    /// The verdict in plain words.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::NotWorse => "not worse beyond the spread",
            Self::Worse => "worse",
            Self::TooFew => "too few runs to say",
        }
    }
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

fn middle(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[half] } else { f64::midpoint(sorted[half - 1], sorted[half]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(of: &[(f64, f64)]) -> Vec<Pair> {
        of.iter().map(|&(ours, theirs)| Pair { ours, theirs }).collect()
    }

    #[test]
    fn median_of_an_odd_number_is_the_middle_one() {
        let summary = Summary::of(&[9.0, 1.0, 4.0]);
        assert_eq!(summary, Some(Summary { median: 4.0, min: 1.0, max: 9.0 }));
    }

    #[test]
    fn median_of_an_even_number_lies_between_the_middle_two() {
        assert_eq!(Summary::of(&[8.0, 2.0, 1.0, 4.0]).map(|s| s.median), Some(3.0));
    }

    #[test]
    fn nothing_has_no_summary() {
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn quantiles_are_observed_figures() {
        let hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(quantile(&hundred, 0.5), Some(50.0));
        assert_eq!(quantile(&hundred, 0.99), Some(99.0));
        assert_eq!(quantile(&hundred, 1.0), Some(100.0));
        assert_eq!(quantile(&hundred, 0.0), Some(1.0));
        assert_eq!(quantile(&[7.0], 0.99), Some(7.0));
    }

    #[test]
    fn ratios_are_taken_pair_by_pair() {
        assert_eq!(ratios(&pairs(&[(1.0, 2.0), (6.0, 2.0)])), Some(vec![0.5, 3.0]));
    }

    #[test]
    fn a_zero_divisor_leaves_no_ratio() {
        assert_eq!(ratios(&pairs(&[(1.0, 2.0), (6.0, 0.0)])), None);
    }

    #[test]
    fn a_run_without_a_partner_is_left_out() {
        assert_eq!(Pair::zip(&[1.0, 2.0, 3.0], &[1.0, 2.0]).len(), 2);
    }

    #[test]
    fn only_a_lead_in_every_pair_is_a_verdict() {
        assert_eq!(Verdict::of(&pairs(&[(1.0, 2.0), (1.0, 3.0), (2.0, 3.0)])), Verdict::Better);
        assert_eq!(Verdict::of(&pairs(&[(3.0, 2.0), (4.0, 3.0), (9.0, 3.0)])), Verdict::Worse);
        assert_eq!(Verdict::of(&pairs(&[(3.0, 2.0), (4.0, 3.0), (1.0, 3.0)])), Verdict::NotWorse);
        assert_eq!(Verdict::of(&pairs(&[(3.0, 2.0), (4.0, 3.0), (3.0, 3.0)])), Verdict::NotWorse);
    }

    #[test]
    fn two_pairs_are_too_few() {
        assert_eq!(Verdict::of(&pairs(&[(1.0, 2.0), (1.0, 3.0)])), Verdict::TooFew);
    }
}
