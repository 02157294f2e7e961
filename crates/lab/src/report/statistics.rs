//! Median and spread of a few repetitions.
//!
//! Knows nothing of what the figures mean.

/// The middle and the ends of some figures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Summary {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Summary {
    /// `None` without figures.
    pub(crate) fn of(figures: impl IntoIterator<Item = f64>) -> Option<Summary> {
        let mut sorted: Vec<f64> = figures.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (low, high) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median =
            if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) };
        Some(Summary { median, low, high })
    }
}

/// A figure with three significant digits, never in scientific form.
pub(crate) fn figure(value: f64) -> String {
    let digits = match value.abs() {
        0.0 => 0,
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(Summary::of([]), None);
        assert_eq!(Summary::of([3.0]).map(|of| of.median), Some(3.0));
        assert_eq!(Summary::of([3.0, 1.0, 2.0]), Some(Summary { median: 2.0, low: 1.0, high: 3.0 }));
        assert_eq!(Summary::of([4.0, 1.0, 2.0, 3.0]).map(|of| of.median), Some(2.5));
    }

    #[test]
    fn figures_have_three_digits() {
        let cases =
            [(0.0, "0"), (0.1234, "0.123"), (1.234, "1.23"), (12.34, "12.3"), (1234.5, "1234"), (-0.5, "-0.500")];
        for (value, text) in cases {
            assert_eq!(figure(value), text);
        }
    }
}
