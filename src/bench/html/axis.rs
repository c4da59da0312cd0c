//! An axis: where a value stands on it, what is marked, and how that is written.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

/// Marks that a linear axis has about.
const MARKS: f64 = 5.0;

/// The percentiles that are marked.
const PERCENTILE_MARKS: [f64; 7] = [0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999];

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    /// What stands below it; empty where the title of the figure says it.
    pub(super) name: &'static str,
    range: Range<f64>,
    marks: Vec<f64>,
    scale: Scale,
    label: fn(f64) -> String,
}

#[derive(Clone, Copy, Debug)]
enum Scale {
    Linear,
    Log,
    /// Each further 9 takes as much room as the one before.
    Percentile,
}

impl Axis {
    /// Seconds from 0 to `end_s`.
    pub(super) fn seconds(name: &'static str, end_s: f64) -> Self {
        let end_s = end_s.max(0.001);
        Self { name, range: 0.0..end_s, marks: linear_marks(end_s), scale: Scale::Linear, label: short }
    }

    /// From 0 to `max` or a little more.
    pub(super) fn linear(max: f64) -> Self {
        let max = if max > 0.0 { max * 1.05 } else { 1.0 };
        Self { name: "", range: 0.0..max, marks: linear_marks(max), scale: Scale::Linear, label: short }
    }

    /// From a little below `min` to a little above `max`, in equal ratios. Both are above 0.
    pub(super) fn log(min: f64, max: f64, label: fn(f64) -> String) -> Self {
        let range = min / 1.25..max * 1.25;
        Self { name: "", marks: log_marks(&range), range, scale: Scale::Log, label }
    }

    /// Percentiles from 0 to `max`, which is below 100.
    pub(super) fn percentiles(name: &'static str, max: f64) -> Self {
        let marks = PERCENTILE_MARKS.into_iter().filter(|mark| *mark <= max).collect();
        let label = |percentile| format!("{percentile} %");
        Self { name, range: 0.0..max, marks, scale: Scale::Percentile, label }
    }

    /// Where a value stands, evenly.
    fn place(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => value,
            Scale::Log => value.log10(),
            Scale::Percentile => -(1.0 - value / 100.0).log10(),
        }
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (first, last): (i32, i32)) -> i32 {
        let (start, end) = (self.place(self.range.start), self.place(self.range.end));
        let share = (self.place(*value) - start) / (end - start);
        first + (f64::from(last - first) * share.clamp(0.0, 1.0)).round() as i32
    }

    fn key_points<H: KeyPointHint>(&self, hint: H) -> Vec<f64> {
        if hint.weight().allow_light_points() { Vec::new() } else { self.marks.clone() }
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        (self.label)(*value)
    }
}

/// Multiples of 1, 2 or 5 times a power of ten from 0 to `max`, which is above 0.
fn linear_marks(max: f64) -> Vec<f64> {
    let rough = (max / MARKS).max(f64::MIN_POSITIVE);
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0].map(|factor| factor * power).into_iter().find(|step| *step >= rough);
    let step = step.unwrap_or(10.0 * power);
    (0..).map(|index| f64::from(index) * step).take_while(|mark| *mark <= max).collect()
}

/// Powers of ten, and 2 and 5 times these where there are few.
fn log_marks(range: &Range<f64>) -> Vec<f64> {
    let (first, last) = (range.start.log10().floor() as i32, range.end.log10().ceil() as i32);
    let factors: &[f64] = if last - first > 4 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let marks =
        (first..=last).flat_map(|decade| factors.iter().map(move |factor| factor * 10f64.powi(decade)));
    marks.filter(|mark| range.contains(mark)).collect()
}

/// A number in few characters, such as `1.25 M`.
pub(super) fn short(value: f64) -> String {
    let (factor, unit) = match value {
        1e9.. => (1e9, " G"),
        1e6.. => (1e6, " M"),
        1e3.. => (1e3, " k"),
        _ => (1.0, ""),
    };
    format!("{}{unit}", digits(value / factor))
}

/// A time given in microseconds in few characters, such as `1.25 ms`.
pub(super) fn time(us: f64) -> String {
    let (factor, unit) = match us {
        1e6.. => (1e6, "s"),
        1e3.. => (1e3, "ms"),
        _ => (1.0, "us"),
    };
    format!("{} {unit}", digits(us / factor))
}

/// Three digits, or all before the point, without zeros at the end.
fn digits(value: f64) -> String {
    let decimals = match value {
        100.0.. => 0,
        10.0.. => 1,
        _ => 2,
    };
    let text = format!("{value:.decimals$}");
    if decimals == 0 { text } else { text.trim_end_matches('0').trim_end_matches('.').to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times_are_short() {
        let numbers = [0.0, 0.25, 12.0, 999.4, 1_000.0, 1_250_000.0, 8.01e6, 3e9].map(short);
        assert_eq!(numbers, ["0", "0.25", "12", "999", "1 k", "1.25 M", "8.01 M", "3 G"]);
        assert_eq!([7.0, 100.0, 1_250.0, 2e6].map(time), ["7 us", "100 us", "1.25 ms", "2 s"]);
    }

    #[test]
    fn marks_are_round_and_within_the_axis() {
        let labels =
            |axis: &Axis| axis.marks.iter().map(|mark| axis.format_ext(mark)).collect::<Vec<_>>().join(", ");
        assert_eq!(labels(&Axis::seconds("", 10.0)), "0, 2, 4, 6, 8, 10");
        assert_eq!(labels(&Axis::linear(4_321.0)), "0, 1 k, 2 k, 3 k, 4 k");
        assert_eq!(labels(&Axis::log(90.0, 900.0, time)), "100 us, 200 us, 500 us, 1 ms");
        assert_eq!(labels(&Axis::log(9.0, 900_000.0, time)), "10 us, 100 us, 1 ms, 10 ms, 100 ms, 1 s");
        assert_eq!(labels(&Axis::percentiles("", 99.9)), "0 %, 50 %, 90 %, 99 %, 99.9 %");
    }

    #[test]
    fn scales_are_what_they_are_called() {
        let (log, percentiles) = (Axis::log(1.0, 100.0, short), Axis::percentiles("", 99.99));
        let at = |axis: &Axis, value| axis.map(&value, (0, 1_000));
        let ratios = [1.0, 10.0, 100.0].map(|value| at(&log, value));
        assert!(((ratios[1] - ratios[0]) - (ratios[2] - ratios[1])).abs() <= 1, "{ratios:?}");
        assert_eq!(
            [0.0, 90.0, 99.0, 99.9, 99.99].map(|value| at(&percentiles, value)),
            [0, 250, 500, 750, 1_000]
        );
        assert_eq!([0.0, 42.0, 84.0].map(|value| at(&Axis::linear(80.0), value)), [0, 500, 1_000]);
    }

    #[test]
    fn nothing_stands_beside_an_axis() {
        for axis in [Axis::seconds("", 0.0), Axis::linear(0.0), Axis::log(1.0, 1.0, time)] {
            for value in [f64::MIN, 0.0, 1.0, f64::MAX, f64::INFINITY, f64::NAN] {
                assert!((10..=20).contains(&axis.map(&value, (10, 20))), "{axis:?} {value}");
            }
        }
    }
}
