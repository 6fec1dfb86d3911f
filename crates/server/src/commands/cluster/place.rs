//! Regions and processes as people name them: `a` is a region, `a/1` a process in it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A region or one of its processes; both count from 0 inside, regions are letters and processes count from 1 outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The region.
    pub region: u16,
    /// The process in it, or `None` for all of them.
    pub process: Option<u16>,
}

/// How many regions have a name.
pub const MAX_REGIONS: u16 = 26;

impl Place {
    /// The process's name.
    pub fn process(region: u16, process: u16) -> Self {
        Place { region, process: Some(process) }
    }

    /// True if `other` is this place or in it.
    pub fn contains(self, other: Place) -> bool {
        self.region == other.region && (self.process.is_none() || self.process == other.process)
    }

    /// The region's name.
    pub fn region_name(self) -> char {
        char::from(b'a' + (self.region % MAX_REGIONS) as u8)
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no place: `a` is a region, `a/1` a process");
        let (region, process) = match text.split_once('/') {
            Some((region, process)) => (region, Some(process)),
            None => (text, None),
        };
        let [letter @ b'a'..=b'z'] = region.as_bytes() else { return Err(wrong()) };
        let process = match process.map(str::parse::<u16>) {
            None => None,
            Some(Ok(number)) => Some(number.checked_sub(1).ok_or_else(wrong)?),
            Some(Err(_)) => return Err(wrong()),
        };
        Ok(Place { region: u16::from(letter - b'a'), process })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.region_name())?;
        self.process.map_or(Ok(()), |process| write!(f, "/{}", process + 1))
    }
}

/// `a-b=80ms`: what takes how long from one place to the other, each way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay {
    /// One end.
    pub from: Place,
    /// The other.
    pub to: Place,
    /// One way.
    pub delay: Duration,
}

impl Delay {
    /// True if it delays what passes between these processes, in either direction.
    pub fn is_between(&self, a: Place, b: Place) -> bool {
        let passes = |from, to| self.from.contains(from) && self.to.contains(to);
        passes(a, b) || passes(b, a)
    }
}

impl FromStr for Delay {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('=').and_then(|(link, delay)| Some((link.split_once('-')?, delay)));
        let Some(((from, to), delay)) = parts else {
            return Err(format!("`{text}` is not such as `a-b=80ms`"));
        };
        Ok(Delay { from: from.parse()?, to: to.parse()?, delay: duration(delay)? })
    }
}

/// `a/1=-200ms`: how far a process's clock is off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skew {
    /// The process.
    pub process: Place,
    /// Added to its clock, in milliseconds.
    pub skew_ms: i64,
}

impl FromStr for Skew {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not such as `a/1=200ms` or `a/1=-1s`");
        let (process, skew) = text.split_once('=').ok_or_else(wrong)?;
        let process: Place = process.parse()?;
        process.process.ok_or_else(wrong)?;
        let (sign, skew) = skew.strip_prefix('-').map_or((1, skew), |skew| (-1, skew));
        Ok(Skew { process, skew_ms: sign * duration(skew)?.as_millis() as i64 })
    }
}

/// A duration such as `80ms` or `1.5s`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is no duration such as `80ms` or `1.5s`");
    let (number, unit_ms) = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(number), _) => (number, 1.0),
        (None, Some(number)) => (number, 1000.0),
        (None, None) => return Err(wrong()),
    };
    let value: f64 = number.parse().map_err(|_| wrong())?;
    let longest_ms = 3_600_000.0;
    let milliseconds = value * unit_ms;
    if !(0.0..=longest_ms).contains(&milliseconds) {
        return Err(wrong());
    }
    Ok(Duration::from_micros((milliseconds * 1000.0) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_and_written_alike() {
        for name in ["a", "z", "b/1", "c/12"] {
            assert_eq!(name.parse::<Place>().unwrap().to_string(), name);
        }
        for wrong in ["", "A", "ab", "a/", "a/0", "a/x", "a/1/2", "1"] {
            assert!(wrong.parse::<Place>().is_err(), "{wrong}");
        }
        let [region, process]: [Place; 2] = ["b", "b/2"].map(|name| name.parse().unwrap());
        assert!(region.contains(process) && process.contains(process) && !process.contains(region));
    }

    #[test]
    fn clocks_are_fast_or_slow() {
        let skew = |text: &str| text.parse::<Skew>().map(|skew| (skew.process.to_string(), skew.skew_ms));
        assert_eq!(skew("a/1=200ms"), Ok(("a/1".to_owned(), 200)));
        assert_eq!(skew("b/2=-1.5s"), Ok(("b/2".to_owned(), -1500)));
        assert!(skew("a=1s").is_err() && skew("a/1=--1s").is_err() && skew("a/1").is_err());
    }

    #[test]
    fn delays_have_units() {
        let delay: Delay = "a-b/2=80ms".parse().unwrap();
        assert_eq!((delay.from.to_string(), delay.to.to_string()), ("a".to_owned(), "b/2".to_owned()));
        assert_eq!(delay.delay, Duration::from_millis(80));
        let [a, b, other] = ["a/1", "b/2", "b/1"].map(|name| name.parse::<Place>().unwrap());
        assert!(delay.is_between(a, b) && delay.is_between(b, a) && !delay.is_between(a, other));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        for wrong in ["80", "ms", "-1ms", "NaNms", "2h", "infs", "9999999s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
        assert!("a=80ms".parse::<Delay>().is_err() && "a-b".parse::<Delay>().is_err());
    }
}
