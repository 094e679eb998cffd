//! How plain values are written: durations, sizes, shares, names of a choice.
//!
//! A quantity has its unit in the file (`"250ms"`, `"64KiB"`, `"10%"`): a bare `250` would be
//! milliseconds to one reader and seconds to the next. Limits of a single value are in its type or
//! its codec, so that no value is out of range. A [`Checker`](crate::Checker) has the rules that
//! depend on a second setting.

use std::fmt::Display;
use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use plimsoll_core::pick::PolicyKind;
use plimsoll_core::{Ratio, Speed, Weight};
use toml::de::DeValue;

use crate::policy_names::policy;
use crate::problem::{Flaw, help_for_name};
use crate::table::read::kind;

/// A number of bytes, above zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(usize);

impl ByteSize {
    /// `bytes` bytes.
    #[must_use]
    pub const fn from_bytes(bytes: NonZeroUsize) -> Self {
        Self(bytes.get())
    }

    /// `kib` times 1,024 bytes.
    #[must_use]
    pub const fn kib(kib: usize) -> Self {
        Self(kib * 1024)
    }

    /// The number of bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        self.0
    }
}

/// Units of size, the largest first, so that printing finds the shortest form.
const SIZE_UNITS: [(&str, usize); 7] = [
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("kB", 1000),
    ("B", 1),
];

/// The text of a string value; the message names the right value by a noun and an example.
///
/// # Errors
/// A value that is not a string.
pub fn text<'v>(value: &'v DeValue<'_>, noun: &str, example: &str) -> Result<&'v str, Flaw> {
    value
        .as_str()
        .ok_or_else(|| Flaw::new(format!("expected {noun}, found {}", kind(value)), format!("write it as {example}")))
}

/// A string in quotes, as TOML writes it.
#[must_use]
pub fn quoted(text: impl Display) -> String {
    toml::Value::from(text.to_string()).to_string()
}

/// One of a fixed choice of names.
///
/// # Errors
/// A value that is not a string, or none of the names.
pub fn choice<T: Copy>(value: &DeValue<'_>, noun: &str, choices: &[(&'static str, T)]) -> Result<T, Flaw> {
    let names = choices.iter().map(|(name, _)| *name);
    let example = names.clone().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
    let name = text(value, noun, &format!("one of {example}"))?;
    choices
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, choice)| *choice)
        .ok_or_else(|| Flaw::new(format!("\"{name}\" is not {noun}"), help_for_name(name, names)))
}

fn duration(text: &str) -> Result<Duration, Flaw> {
    let help = "write a number above zero with a unit, such as \"250ms\", \"10s\" or \"5m\"";
    match humantime::parse_duration(text) {
        Ok(Duration::ZERO) => Err(Flaw::new("must be longer than zero", help)),
        Ok(duration) => Ok(duration),
        Err(_) if is_number(text) => {
            Err(Flaw::new(format!("\"{text}\" has no unit"), format!("write \"{text}s\" for seconds, or \"{text}ms\"")))
        }
        Err(_) => Err(Flaw::new(format!("\"{text}\" is not a duration"), help)),
    }
}

/// Whether `text` is a whole number above zero without a unit.
fn is_number(text: &str) -> bool {
    text.parse::<u64>().is_ok_and(|number| number > 0)
}

/// The unit that `10m`, `512M` and `2g` of other programs stand for.
fn binary_unit(text: &str) -> Option<String> {
    let split = text.len() - text.chars().next_back()?.len_utf8();
    let (number, unit) = text.split_at_checked(split)?;
    let unit = match unit {
        "k" | "K" => "KiB",
        "m" | "M" => "MiB",
        "g" | "G" => "GiB",
        _ => return None,
    };
    is_number(number.trim()).then(|| format!("{}{unit}", number.trim()))
}

fn size(text: &str) -> Result<ByteSize, Flaw> {
    if let Some(meant) = binary_unit(text) {
        return Err(Flaw::new(format!("\"{text}\" is not a size"), format!("write \"{meant}\"")));
    }
    if is_number(text) {
        return Err(Flaw::new(
            format!("\"{text}\" has no unit"),
            format!("write \"{text}B\" for bytes, or \"{text}MiB\""),
        ));
    }
    let flaw = || {
        Flaw::new(
            format!("\"{text}\" is not a size"),
            "write a whole number above zero with a unit, such as \"64KiB\", \"1MiB\" or \"10MB\"",
        )
    };
    let split = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(flaw)?;
    let (digits, unit) = text.split_at(split);
    let (_, factor) =
        SIZE_UNITS.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(unit.trim())).ok_or_else(flaw)?;
    let bytes = digits.parse::<usize>().ok().and_then(|number| number.checked_mul(factor)).filter(|bytes| *bytes > 0);
    bytes.map(ByteSize).ok_or_else(flaw)
}

/// The number that an integer or float value is; `None` for anything else.
#[must_use]
pub fn number(value: &DeValue<'_>) -> Option<f64> {
    match value {
        DeValue::Integer(number) => {
            i64::from_str_radix(number.as_str(), number.radix()).ok().map(|number| number as f64)
        }
        DeValue::Float(number) => number.as_str().parse().ok(),
        _ => None,
    }
}

fn ratio(value: &DeValue<'_>) -> Result<Ratio, Flaw> {
    let share = match value {
        DeValue::String(text) => {
            text.strip_suffix('%').and_then(|percent| percent.trim().parse::<f64>().ok()).map(|percent| percent / 100.0)
        }
        other => number(other),
    };
    let help = "write a share such as \"10%\" or 0.1, from 0 to 1";
    let share = share.ok_or_else(|| Flaw::new(format!("expected a share, found {}", kind(value)), help))?;
    Ratio::new(share).ok_or_else(|| Flaw::new(format!("{} is not a share of a whole", kind(value)), help))
}

fn weight(value: &DeValue<'_>) -> Result<Weight, Flaw> {
    let range = Weight::RANGE;
    let help = format!("write a number from {} to {}; 1 is ordinary, 2 is twice as much", range.start(), range.end());
    let number = number(value).ok_or_else(|| Flaw::new(format!("expected a weight, found {}", kind(value)), &help))?;
    if number == 0.0 {
        return Err(Flaw::new("0 is not a weight", "remove the backend, or write a small weight such as 0.01"));
    }
    Weight::new(number).ok_or_else(|| Flaw::new(format!("{number} is not a weight"), help))
}

fn speed(value: &DeValue<'_>) -> Result<Speed, Flaw> {
    let range = Speed::RANGE;
    let help = format!(
        "write a number from {} to {}; 1 is the reference core, 2 is twice as fast",
        range.start(),
        range.end()
    );
    let number = number(value)
        .ok_or_else(|| Flaw::new(format!("expected the speed of a machine, found {}", kind(value)), &help))?;
    Speed::new(number).ok_or_else(|| Flaw::new(format!("{number} is not the speed of a machine"), help))
}

/// A whole number of at least `least`, which fits `T`.
///
/// # Errors
/// A value that is not a whole number, or too small or too large.
pub fn whole<T: TryFrom<i64>>(value: &DeValue<'_>, least: i64) -> Result<T, Flaw> {
    let help = format!("write a whole number of at least {least}, without quotes");
    let DeValue::Integer(number) = value else {
        return Err(Flaw::new(format!("expected a whole number, found {}", kind(value)), help));
    };
    i64::from_str_radix(number.as_str(), number.radix())
        .ok()
        .filter(|number| *number >= least)
        .and_then(|number| T::try_from(number).ok())
        .ok_or_else(|| Flaw::new(format!("{number} is out of range"), help))
}

/// Implements [`Value`](crate::Value) for types of the crate that calls it, each by a function from
/// the TOML value to a result, and one from the value to TOML.
#[macro_export]
macro_rules! values {
    ($($type:ty: $read:expr, $print:expr;)*) => {$(
        impl $crate::Value for $type {
            fn read(value: &$crate::Spanned<$crate::DeValue<'_>>, reading: &mut $crate::Reading<'_>) -> Option<Self> {
                let read: fn(&$crate::DeValue<'_>) -> Result<Self, $crate::Flaw> = $read;
                reading.take(read(value.get_ref()))
            }

            fn print(&self) -> String {
                let print: fn(&Self) -> String = $print;
                print(self)
            }
        }
    )*};
}
values! {
    Duration: |v| match v {
        DeValue::Integer(number) if is_number(number.as_str()) => {
            let help = format!("write \"{number}s\" for seconds, or \"{number}ms\"");
            Err(Flaw::new(format!("expected a duration, found the number {number}"), help))
        }
        v => duration(text(v, "a duration", "a number with a unit, in quotes, such as \"10s\" or \"250ms\"")?),
    }, |d| quoted(humantime::format_duration(*d));
    ByteSize: |v| match v {
        DeValue::Integer(number) if is_number(number.as_str()) => {
            let help = format!("write \"{number}B\" for bytes, or a larger unit such as \"64KiB\"");
            Err(Flaw::new(format!("expected a size, found the number {number}"), help))
        }
        v => size(text(v, "a size", "a number with a unit, in quotes, such as \"64KiB\"")?),
    }, |size| {
        let (unit, factor) = SIZE_UNITS.into_iter().find(|(_, factor)| size.0.is_multiple_of(*factor)).expect("the last unit is one byte");
        quoted(format!("{}{unit}", size.0 / factor))
    };
    Ratio: ratio, |ratio| ratio.as_f64().to_string();
    Weight: weight, |weight| weight.as_f64().to_string();
    Speed: speed, |speed| speed.as_f64().to_string();
    f64: |v| match number(v) {
        Some(number) if number.is_finite() && number >= 0.0 => Ok(number),
        Some(number) => Err(Flaw::new(format!("{number} is out of range"), "write a number of at least 0")),
        None => Err(Flaw::new(format!("expected a number, found {}", kind(v)), "write a number, without quotes")),
    }, |number| format!("{number:?}");
    u32: |v| whole(v, 0), u32::to_string;
    u64: |v| whole(v, 0), u64::to_string;
    usize: |v| whole(v, 0), usize::to_string;
    NonZeroU32: |v| whole::<u32>(v, 1).map(|number| NonZeroU32::new(number).expect("at least 1")), NonZeroU32::to_string;
    NonZeroUsize: |v| whole::<usize>(v, 1).map(|number| NonZeroUsize::new(number).expect("at least 1")), NonZeroUsize::to_string;
    bool: |v| match v {
        DeValue::Boolean(value) => Ok(*value),
        other => Err(Flaw::new(format!("expected true or false, found {}", kind(other)), "write true or false, without quotes")),
    }, bool::to_string;
    String: |v| text(v, "text", "text in quotes").map(str::to_owned), |text| quoted(text);
    PolicyKind: |v| {
        let names: Vec<String> = PolicyKind::ALL.iter().map(|policy| quoted(policy.name())).collect();
        policy(text(v, "a policy", &format!("one of {}", names.join(", ")))?)
    }, |policy| quoted(policy.name());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Value;

    #[test]
    fn sizes_have_units_and_print_in_the_largest_that_fits() {
        for (text, bytes, printed) in [
            ("64KiB", 65_536, "\"64KiB\""),
            ("1 mb", 1_000_000, "\"1MB\""),
            ("7B", 7, "\"7B\""),
            ("2GiB", 2 << 30, "\"2GiB\""),
        ] {
            assert_eq!(size(text).unwrap().bytes(), bytes, "{text}");
            assert_eq!(size(text).unwrap().print(), printed);
        }
        for junk in ["", "64", "KiB", "0B", "1.5MiB", "-1B", "64KiBs", "99999999999GiB"] {
            assert!(size(junk).is_err(), "{junk}");
        }
    }

    #[test]
    fn durations_need_a_unit_and_are_longer_than_zero() {
        assert_eq!(duration("250ms").unwrap(), Duration::from_millis(250));
        assert_eq!(duration("1m 30s").unwrap().print(), "\"1m 30s\"");
        for junk in ["", "10", "0s", "-1s", "10 parsecs"] {
            assert!(duration(junk).is_err(), "{junk}");
        }
    }
}
