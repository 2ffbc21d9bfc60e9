//! Windows against a clock that is read minute by minute, over changes of daylight saving time.

use jiff::civil::date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, Zoned};
use nudge_api::{Day, Reason, Window};
use proptest::prelude::*;

use super::windows::{WindowError, Windows, next_common_opening, window_faults};

const DAYS: [Day; 7] = [Day::Mon, Day::Tue, Day::Wed, Day::Thu, Day::Fri, Day::Sat, Day::Sun];
const MINUTE: SignedDuration = SignedDuration::from_mins(1);

fn window(days: &[Day], from: &str, to: &str, zone: &str) -> Window {
    Window {
        name: "shop".to_owned(),
        days: days.to_vec(),
        from: from.to_owned(),
        to: to.to_owned(),
        time_zone: zone.to_owned(),
    }
}

fn windows(days: &[Day], from: &str, to: &str, zone: &str) -> Windows {
    Windows::parse(&[window(days, from, to, zone)]).unwrap()
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// Returns the moments when the windows open and close in the hours after `start`, checked minute by minute, in the
/// zone's local time.
fn changes(windows: &Windows, zone: &str, start: &str, hours: i64) -> Vec<String> {
    let zone = TimeZone::get(zone).unwrap();
    let (mut time, mut open, mut all) = (at(start), windows.is_open(at(start)), Vec::new());
    let end = time + SignedDuration::from_hours(hours);
    while time < end {
        time += MINUTE;
        if windows.is_open(time) != open {
            open = !open;
            let there = time.to_zoned(zone.clone());
            all.push(format!("{} {}", if open { "opens" } else { "closes" }, there.strftime("%a %H:%M %:z")));
        }
    }
    all
}

#[test]
fn a_window_that_ends_after_midnight_belongs_to_the_day_it_begins() {
    let friday = windows(&[Day::Fri], "22:00", "02:00", "UTC");
    let week = changes(&friday, "UTC", "2026-11-23T00:00:00Z", 7 * 24);
    assert_eq!(week, ["opens Fri 22:00 +00:00", "closes Sat 02:00 +00:00"]);
}

#[test]
fn the_whole_day_and_its_end() {
    let friday = changes(&windows(&[Day::Fri], "00:00", "24:00", "UTC"), "UTC", "2026-11-23T00:00:00Z", 7 * 24);
    assert_eq!(friday, ["opens Fri 00:00 +00:00", "closes Sat 00:00 +00:00"]);
    // A day from noon to noon.
    let noon = changes(&windows(&[Day::Fri], "12:00", "12:00", "UTC"), "UTC", "2026-11-23T00:00:00Z", 7 * 24);
    assert_eq!(noon, ["opens Fri 12:00 +00:00", "closes Sat 12:00 +00:00"]);
    let sunday = changes(&windows(&[Day::Sun], "23:00", "00:00", "UTC"), "UTC", "2026-11-23T00:00:00Z", 8 * 24);
    assert_eq!(sunday, ["opens Sun 23:00 +00:00", "closes Mon 00:00 +00:00"]);
}

#[test]
fn what_begins_in_the_hour_that_does_not_exist_begins_after_it() {
    let (zone, night) = ("Europe/Berlin", "2026-03-28T20:00:00Z");
    let open = |from: &str, to: &str| changes(&windows(&[Day::Sun], from, to, zone), zone, night, 24);
    assert_eq!(open("02:30", "05:00"), ["opens Sun 03:00 +02:00", "closes Sun 05:00 +02:00"]);
    assert_eq!(open("01:00", "02:30"), ["opens Sun 01:00 +01:00", "closes Sun 03:00 +02:00"]);
    assert!(open("02:15", "02:45").is_empty(), "this day has no such time");
    let next = windows(&[Day::Sun], "02:15", "02:45", zone).next_opening(at(night)).unwrap();
    assert_eq!(next.to_string(), "2026-04-05 02:15 Europe/Berlin (00:15 UTC)");
}

#[test]
fn the_hour_that_comes_twice_counts_twice() {
    let (zone, night) = ("Europe/Berlin", "2026-10-24T20:00:00Z");
    let open = |from: &str, to: &str| changes(&windows(&[Day::Sun], from, to, zone), zone, night, 24);
    assert_eq!(
        open("01:00", "02:30"),
        ["opens Sun 01:00 +02:00", "closes Sun 02:30 +02:00", "opens Sun 02:00 +01:00", "closes Sun 02:30 +01:00"]
    );
    assert_eq!(
        open("02:30", "04:00"),
        ["opens Sun 02:30 +02:00", "closes Sun 02:00 +01:00", "opens Sun 02:30 +01:00", "closes Sun 04:00 +01:00"]
    );
    assert_eq!(open("09:00", "17:00"), ["opens Sun 09:00 +01:00", "closes Sun 17:00 +01:00"]);
}

#[test]
fn zones_with_odd_offsets_and_days_that_never_were() {
    // Lord Howe changes by half an hour.
    let (zone, night) = ("Australia/Lord_Howe", "2026-10-03T10:00:00Z");
    let open = changes(&windows(&[Day::Sun], "02:10", "03:00", zone), zone, night, 24);
    assert_eq!(open, ["opens Sun 02:30 +11:00", "closes Sun 03:00 +11:00"]);
    let next = windows(&[Day::Mon], "09:00", "10:00", "Asia/Kathmandu").next_opening(at("2026-11-22T00:00:00Z"));
    assert_eq!(next.unwrap().to_string(), "2026-11-23 09:00 Asia/Kathmandu (03:15 UTC)");
    // Samoa had no 30 December 2011, a Friday.
    let (zone, week) = ("Pacific/Apia", "2011-12-28T10:00:00Z");
    assert_eq!(
        changes(&windows(&[Day::Thu, Day::Fri, Day::Sat], "09:00", "17:00", zone), zone, week, 4 * 24),
        ["opens Thu 09:00 -10:00", "closes Thu 17:00 -10:00", "opens Sat 09:00 +14:00", "closes Sat 17:00 +14:00"]
    );
    let friday = windows(&[Day::Fri], "09:00", "17:00", zone).next_opening(at("2011-12-29T00:00:00Z")).unwrap();
    assert_eq!(friday.to_string(), "2012-01-06 09:00 Pacific/Apia (2012-01-05 19:00 UTC)");
    // Kwajalein had no 21 August 1993, a Saturday.
    let (zone, week) = ("Pacific/Kwajalein", "1993-08-19T00:00:00Z");
    let weekend = windows(&[Day::Fri, Day::Sat, Day::Sun], "10:00", "11:00", zone);
    assert_eq!(
        changes(&weekend, zone, week, 4 * 24),
        ["opens Fri 10:00 -12:00", "closes Fri 11:00 -12:00", "opens Sun 10:00 +12:00", "closes Sun 11:00 +12:00"]
    );
}

#[test]
fn the_next_opening_is_written_in_its_zone_and_in_utc() {
    let berlin = windows(&[Day::Mon, Day::Tue], "09:00", "17:00", "Europe/Berlin");
    let next = |time: &str| berlin.next_opening(at(time)).unwrap().to_string();
    assert_eq!(next("2026-10-24T12:00:00Z"), "2026-10-26 09:00 Europe/Berlin (08:00 UTC)");
    assert_eq!(next("2026-10-19T16:00:00Z"), "2026-10-20 09:00 Europe/Berlin (07:00 UTC)");
    let tokyo = windows(&[Day::Mon], "01:00", "02:00", "Asia/Tokyo").next_opening(at("2026-12-31T00:00:00Z"));
    assert_eq!(tokyo.unwrap().to_string(), "2027-01-04 01:00 Asia/Tokyo (2027-01-03 16:00 UTC)");
    let utc = windows(&[Day::Fri], "00:00", "01:00", "UTC").next_opening(at("2026-12-31T23:59:59.5Z")).unwrap();
    assert_eq!((utc.at, utc.to_string().as_str()), (at("2027-01-01T00:00:00Z"), "2027-01-01 00:00 UTC"));
}

#[test]
fn what_can_not_be_used_is_refused() {
    let refused = |window: Window| Windows::parse(&[window]).unwrap_err();
    for zone in ["Europe/Berln", "", "Etc/Unknown", "EST5EDT,M3.2.0,M11.1.0", "../etc/passwd", "local"] {
        assert_eq!(refused(window(&DAYS, "09:00", "17:00", zone)), WindowError::Zone(zone.to_owned()));
    }
    for time in ["9:00", "24:00", "09:60", "09:00:00", "", "+9:00", "0é:0", "09-00"] {
        assert_eq!(refused(window(&DAYS, time, "17:00", "UTC")), WindowError::Time(time.to_owned()));
    }
    assert_eq!(refused(window(&DAYS, "09:00", "25:00", "UTC")), WindowError::Time("25:00".to_owned()));
    assert_eq!(refused(window(&[], "09:00", "17:00", "UTC")), WindowError::NoDays);
}

#[test]
fn a_window_that_can_not_be_used_closes_itself_alone() {
    let (mars, friday) =
        (window(&DAYS, "00:00", "24:00", "Mars/Olympus"), window(&[Day::Fri], "09:00", "17:00", "UTC"));
    let usable = Windows::parse(&[mars.clone(), friday]).unwrap();
    let week = changes(&usable, "UTC", "2026-11-23T00:00:00Z", 7 * 24);
    assert_eq!(week, ["opens Fri 09:00 +00:00", "closes Fri 17:00 +00:00"]);
    let late = window(&DAYS, "9:00", "17:00", "UTC");
    assert_eq!(Windows::parse(&[mars, late]).unwrap_err(), WindowError::Zone("Mars/Olympus".to_owned()));
}

#[test]
fn each_window_of_a_list_is_checked() {
    let named =
        |name: &str, from: &str, zone: &str| Window { name: name.to_owned(), ..window(&DAYS, from, "17:00", zone) };
    let good = named("good", "09:00", "UTC");
    assert_eq!(window_faults("field", std::slice::from_ref(&good)), []);
    let faults = window_faults("field", &[named("mars", "09:00", "Mars/Olympus"), good, named("late", "24:00", "UTC")]);
    let expected = [
        Reason::UnknownTimeZone.explained(
            "field: window mars: time zone \"Mars/Olympus\" is not known to this release; use a name of the IANA database, such as \
             Europe/Berlin or UTC",
        ),
        Reason::InvalidSpec.explained("field: window late: \"24:00\" is not a time of day; write one such as 09:00"),
    ];
    assert_eq!(faults, expected);
}

#[test]
fn windows_that_never_open_together_end_in_no_time_and_not_in_a_loop() {
    let (am, pm) = (windows(&DAYS, "06:00", "12:00", "UTC"), windows(&DAYS, "12:00", "18:00", "UTC"));
    assert_eq!(next_common_opening(&[am, pm], at("2026-01-01T00:00:00Z")), None);
    let (sat, night) = (windows(&[Day::Sat], "00:00", "24:00", "UTC"), windows(&DAYS, "22:00", "02:00", "UTC"));
    let both = next_common_opening(&[night, sat], at("2026-11-25T09:00:00Z")).unwrap();
    assert_eq!(both.to_string(), "2026-11-28 00:00 UTC");
}

/// Returns the first minute from `start` on with an open window, by a check of each minute.
fn brute(windows: &[Windows], start: Timestamp, end: Timestamp) -> Option<Timestamp> {
    let mut time = start;
    while time < end && !windows.iter().all(|one| one.is_open(time)) {
        time += MINUTE;
    }
    (time < end).then_some(time)
}

/// Whether it is open, read again from the words of the page: the clock on the wall there, in minutes of the week.
fn is_open_by_the_page(window: &Window, there: &Zoned) -> bool {
    let minutes = |text: &str| text[..2].parse::<i64>().unwrap() * 60 + text[3..].parse::<i64>().unwrap();
    let day = i64::from(there.weekday().to_monday_zero_offset());
    let now = day * 1440 + i64::from(there.hour()) * 60 + i64::from(there.minute());
    let (from, to) = (minutes(&window.from), minutes(&window.to));
    let length = if to > from { to - from } else { to + 1440 - from };
    window.days.iter().any(|day| {
        let begins = (0..).zip(DAYS).find(|(_, other)| other == day).unwrap().0 * 1440 + from;
        (now - begins).rem_euclid(7 * 1440) < length
    })
}

/// A whole year from its end: each minute in the days around changes of clocks, and else every fifth, which is when
/// these windows open and close.
fn whole_year(zone_name: &str, year: i16, all: &[Window]) {
    let (parsed, zone) = (Windows::parse(all).unwrap(), TimeZone::get(zone_name).unwrap());
    let first = |year, day| date(year, 1, day).at(0, 0, 0, 0).to_zoned(zone.clone()).unwrap().timestamp();
    let (start, end) = (first(year, 1), first(year + 1, 15));
    let changes = zone.following(start).map(|change| change.timestamp()).take_while(|change| *change < end);
    let changes: Vec<Timestamp> = changes.collect();
    let (mut time, mut next, mut was) = (end, None, false);
    while time > start {
        let near = changes.iter().any(|change| time.duration_since(*change).abs() < SignedDuration::from_hours(30));
        time -= if near { MINUTE } else { MINUTE * 5 };
        let open = parsed.is_open(time);
        let there = time.to_zoned(zone.clone());
        assert_eq!(open, all.iter().any(|window| is_open_by_the_page(window, &there)), "{there} {all:?}");
        next = if open { Some(time) } else { next };
        let asked = open != was || time.as_second() / 60 % 97 == 0;
        if next.is_some() && asked {
            assert_eq!(parsed.next_opening(time).map(|opening| opening.at), next, "{there} {all:?}");
        }
        was = open;
    }
}

#[test]
fn whole_years_by_the_clock_on_the_wall() {
    for (zone, year) in [
        ("Europe/Berlin", 2026),
        ("America/New_York", 2026),
        ("Australia/Lord_Howe", 2026),
        ("Asia/Kathmandu", 2026),
        ("UTC", 2027),
        ("Pacific/Apia", 2011),
        ("Africa/Casablanca", 2026),
    ] {
        let windows = [
            window(&[Day::Mon, Day::Wed, Day::Fri], "09:00", "17:00", zone),
            window(&[Day::Sat, Day::Sun], "23:30", "02:15", zone),
            window(&[Day::Sun, Day::Fri], "02:20", "02:45", zone),
        ];
        whole_year(zone, year, &windows);
        whole_year(zone, year, &windows[2..]);
    }
}

const ZONES: [&str; 9] = [
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Kathmandu",
    "UTC",
    "Pacific/Apia",
    "Pacific/Kwajalein",
    "Africa/Casablanca",
    "America/St_Johns",
];

fn any_window() -> impl Strategy<Value = Window> {
    let days = prop::collection::btree_set(0..7_usize, 1..=7);
    let time = |(hour, minute): (u8, u8)| format!("{hour:02}:{minute:02}");
    let from = (0..24_u8, 0..60_u8).prop_map(time);
    let to = prop_oneof![9 => (0..24_u8, 0..60_u8).prop_map(time), 1 => Just("24:00".to_owned())];
    let zone = prop::sample::select(&ZONES);
    (days, from, to, zone).prop_map(|(days, from, to, zone)| {
        let days: Vec<Day> = days.into_iter().map(|day| DAYS[day]).collect();
        window(&days, &from, &to, zone)
    })
}

/// Generates a minute near a change of clocks somewhere, or any other minute.
fn any_minute() -> impl Strategy<Value = Timestamp> {
    let near = prop::sample::select(vec![
        "2026-03-29T01:00:00Z",
        "2026-10-25T01:00:00Z",
        "2026-03-08T07:00:00Z",
        "2026-11-01T06:00:00Z",
        "2026-04-04T15:00:00Z",
        "2026-10-03T15:30:00Z",
        "2011-12-30T10:00:00Z",
        "1993-08-21T12:00:00Z",
        "2026-12-31T23:00:00Z",
    ]);
    (near, -10_000..10_000_i64).prop_map(|(near, minutes)| at(near) + SignedDuration::from_mins(minutes))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_next_opening_is_the_first_minute_that_is_open(all in prop::collection::vec(any_window(), 1..3), start in any_minute()) {
        let parsed = Windows::parse(&all).unwrap();
        let end = start + SignedDuration::from_hours(24 * 15);
        let found = parsed.next_opening(start).map(|opening| opening.at);
        match brute(std::slice::from_ref(&parsed), start, end) {
            Some(first) => prop_assert_eq!(found, Some(first)),
            None => prop_assert!(found.is_none_or(|found| found >= end)),
        }
    }

    #[test]
    fn several_lists_open_when_all_of_them_are_open(all in prop::collection::vec(any_window(), 2..4), start in any_minute()) {
        let lists: Vec<Windows> = all.iter().map(|one| Windows::parse(std::slice::from_ref(one)).unwrap()).collect();
        let end = start + SignedDuration::from_hours(24 * 15);
        let found = next_common_opening(&lists, start).map(|opening| opening.at);
        match brute(&lists, start, end) {
            Some(first) if first == start => prop_assert_eq!(found, None, "they are open"),
            Some(first) => prop_assert_eq!(found, Some(first)),
            None => prop_assert!(found.is_none_or(|found| found >= end)),
        }
    }
}
