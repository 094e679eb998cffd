//! How much each request takes: `fixed:2ms`, `exp:2ms`, `lognormal:2ms,1.5`, `pareto:1ms,1.5`.
//!
//! | form | meaning |
//! |---|---|
//! | `fixed:D` | always D |
//! | `exp:D` | exponential with mean D |
//! | `lognormal:D,S` | mean D; S is the standard deviation of the logarithm. Like most services at S near 1 |
//! | `pareto:D,A` | least value D, shape A; the mean is D·A/(A−1). The tail is heavy at A near 1 |
//!
//! All but `pareto` name the mean, so that another form at the same duration is the same work in all.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use rand_core::Rng;
use rand_distr::{Distribution as _, Exp, LogNormal, Pareto};

use crate::units;

/// No draw is longer: the tail of a Pareto has no end, and a request of a day tells nobody anything.
const LONGEST: Duration = Duration::from_secs(3_600);

/// A distribution of durations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Distribution {
    form: Form,
    /// As written by the user, but for `S` and `A`: the mean, or the least of a Pareto.
    size: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Fixed,
    Exp(Exp<f64>),
    LogNormal { sigma: f64, draw: LogNormal<f64> },
    Pareto { shape: f64, draw: Pareto<f64> },
}

impl Distribution {
    /// Draws one.
    pub(crate) fn sample(&self, rng: &mut impl Rng) -> Duration {
        // The continuous forms are drawn at size 1 and scaled.
        let factor = match &self.form {
            Form::Fixed => return self.size,
            Form::Exp(draw) => draw.sample(rng),
            Form::LogNormal { draw, .. } => draw.sample(rng),
            Form::Pareto { draw, .. } => draw.sample(rng),
        };
        let seconds = (self.size.as_secs_f64() * factor).min(LONGEST.as_secs_f64());
        Duration::from_secs_f64(seconds)
    }
}

impl FromStr for Distribution {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let forms = "fixed:2ms, exp:2ms, lognormal:2ms,1.5 or pareto:1ms,1.5";
        let (form, parameters) = text.split_once(':').ok_or_else(|| format!("`{text}` must be one of {forms}"))?;
        let (size, second) = match parameters.split_once(',') {
            Some((size, second)) => (size, Some(second)),
            None => (parameters, None),
        };
        let size = units::duration(size.trim())?;
        let second = |what: &str| match second {
            Some(second) => units::positive(second).map_err(|error| format!("the {what} of `{text}`: {error}")),
            None => Err(format!("`{text}` needs a {what}, as in {form}:2ms,1.5")),
        };
        let form = match form {
            "fixed" => Form::Fixed,
            "exp" => Form::Exp(Exp::new(1.0).expect("1 is a rate")),
            "lognormal" => {
                let sigma = second("sigma")?;
                // E[exp(mu + sigma Z)] = exp(mu + sigma^2 / 2), which is 1 for this mu.
                let draw = LogNormal::new(-sigma * sigma / 2.0, sigma).map_err(|error| format!("`{text}`: {error}"))?;
                Form::LogNormal { sigma, draw }
            }
            "pareto" => {
                let shape = second("shape")?;
                let draw = Pareto::new(1.0, shape).map_err(|error| format!("`{text}`: {error}"))?;
                Form::Pareto { shape, draw }
            }
            _ => return Err(format!("`{form}` is not a distribution; use {forms}")),
        };
        if parameters.contains(',') && matches!(form, Form::Fixed | Form::Exp(_)) {
            return Err(format!(
                "`{text}` has one parameter too many; write {}",
                text.split(',').next().unwrap_or(text)
            ));
        }
        Ok(Self { form, size })
    }
}

/// As it is parsed.
impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = humantime::format_duration(self.size);
        match self.form {
            Form::Fixed => write!(f, "fixed:{size}"),
            Form::Exp(_) => write!(f, "exp:{size}"),
            Form::LogNormal { sigma, .. } => write!(f, "lognormal:{size},{sigma}"),
            Form::Pareto { shape, .. } => write!(f, "pareto:{size},{shape}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use rand_core::SeedableRng;
    use rand_pcg::Pcg64Mcg;

    use super::*;

    #[test]
    fn every_form_is_shown_as_it_is_parsed() {
        for text in ["fixed:2ms", "exp:2ms", "lognormal:2ms,1.5", "pareto:1ms,1.5", "fixed:0s", "exp:1s 500ms"] {
            assert_eq!(text.parse::<Distribution>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn mistakes_say_what_is_wanted() {
        for (text, part) in [
            ("2ms", "fixed:2ms"),
            ("uniform:2ms", "not a distribution"),
            ("fixed:2", "unit"),
            ("fixed:2ms,1", "too many; write fixed:2ms"),
            ("lognormal:2ms", "sigma"),
            ("pareto:2ms,0", "greater than zero"),
            ("pareto:2ms,x", "not a number"),
            ("exp:", "unit"),
        ] {
            let error = text.parse::<Distribution>().unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    /// Seed 11, n = 200,000. Relative standard errors of the mean: exponential 1/sqrt(n) = 0.22%;
    /// lognormal with sigma 0.5 sqrt((e^0.25 - 1)/n) = 0.12%; Pareto with shape 4, whose coefficient of
    /// variation is sqrt(1/8), 0.08%. Each bound is 4 of them or more: false alarm 6e-5 or less.
    #[test]
    fn the_mean_is_the_one_named() {
        const N: usize = 200_000;
        for (text, mean, bound) in [
            ("fixed:2ms", 0.002, 1e-9),
            ("exp:2ms", 0.002, 0.0090),
            ("lognormal:2ms,0.5", 0.002, 0.0050),
            ("pareto:3ms,4", 0.004, 0.0033),
        ] {
            let distribution: Distribution = text.parse().unwrap();
            let mut rng = Pcg64Mcg::seed_from_u64(11);
            let sum: f64 = (0..N).map(|_| distribution.sample(&mut rng).as_secs_f64()).sum();
            let measured = sum / N as f64;
            assert!((measured / mean - 1.0).abs() < bound, "{text}: {measured}");
        }
    }

    #[test]
    fn no_draw_is_longer_than_an_hour() {
        let distribution: Distribution = "pareto:1h,0.01".parse().unwrap();
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        assert!((0..1_000).all(|_| distribution.sample(&mut rng) <= LONGEST));
    }
}
