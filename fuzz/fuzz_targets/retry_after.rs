//! `Retry-After`, beside a plain reading of RFC 9110. The input is the header, then, after a newline,
//! the answer's `Date`.
#![no_main]

use std::time::Duration;

use experiment::rules::retry::retry_after;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Ok(input) = std::str::from_utf8(input) else { return };
    let (value, date) = match input.split_once('\n') {
        Some((value, date)) => (value, Some(date)),
        None => (input, None),
    };
    assert_eq!(retry_after(value, date), plainly(value, date), "{value:?} at {date:?}");
});

fn plainly(value: &str, date: Option<&str>) -> Option<Duration> {
    let value = value.trim();
    if !value.is_empty() && value.chars().all(|char| char.is_ascii_digit()) {
        let seconds = value.bytes().fold(0u64, |seconds, digit| {
            seconds.saturating_mul(10).saturating_add(u64::from(digit - b'0'))
        });
        return Some(Duration::from_secs(seconds));
    }
    let (until, now) = (seconds(value)?, seconds(date?.trim())?);
    Some(Duration::from_secs(until.saturating_sub(now)))
}

const DAYS: [&str; 7] =
    ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Seconds from 1970 on, of a date in one of the three forms of RFC 9110, section 5.6.7.
fn seconds(date: &str) -> Option<u64> {
    if let Some((weekday, date)) = date.split_once(", ")
        && let Some(weekday) = DAYS.iter().position(|name| *name == weekday)
    {
        return in_words(weekday, date);
    }
    let words: Vec<&str> = date.split(' ').collect();
    match words[..] {
        // Sun, 06 Nov 1994 08:49:37 GMT
        [weekday, day, month, year, time, "GMT"] => {
            let weekday = DAYS.iter().position(|name| weekday == format!("{},", &name[..3]))?;
            of(weekday, number(day, 2)?, month, number(year, 4)?, time)
        }
        // Sun Nov  6 08:49:37 1994
        [weekday, month, "", day, time, year] => {
            let weekday = DAYS.iter().position(|name| weekday == &name[..3])?;
            of(weekday, number(day, 1)?, month, number(year, 4)?, time)
        }
        [weekday, month, day, time, year] => {
            let weekday = DAYS.iter().position(|name| weekday == &name[..3])?;
            of(weekday, number(day, 2)?, month, number(year, 4)?, time)
        }
        _ => None,
    }
}

/// Sunday, 06-Nov-94 08:49:37 GMT, with anything for the second space, as httpdate has it.
fn in_words(weekday: usize, date: &str) -> Option<u64> {
    if !date.is_ascii() || date.len() != "06-Nov-94 08:49:37 GMT".len() {
        return None;
    }
    let (date, time) = (&date[..9], date[10..].strip_suffix(" GMT")?);
    let [day, month, year] = date.split('-').collect::<Vec<_>>()[..] else { return None };
    let year = number(year, 2)?;
    let year = if year < 70 { year + 2000 } else { year + 1900 };
    of(weekday, number(day, 2)?, month, year, time)
}

fn number(text: &str, digits: usize) -> Option<u64> {
    let is_number = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

fn of(weekday: usize, day: u64, month: &str, year: u64, time: &str) -> Option<u64> {
    let month = MONTHS.iter().position(|name| *name == month)?;
    let [hour, minute, second] = time.split(':').collect::<Vec<_>>()[..] else { return None };
    let [hour, minute, second] = [number(hour, 2)?, number(minute, 2)?, number(second, 2)?];
    let is_leap = |year: u64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let february = if is_leap(year) { 29 } else { 28 };
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    if year < 1970 || day == 0 || day > lengths[month] || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let before: u64 = (1970..year).map(|year| if is_leap(year) { 366 } else { 365 }).sum();
    let days = before + lengths[..month].iter().sum::<u64>() + day - 1;
    // The first of January 1970 was a Thursday.
    (weekday as u64 == (days + 3) % 7).then_some(((days * 24 + hour) * 60 + minute) * 60 + second)
}
