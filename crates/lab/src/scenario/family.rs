//! Families of groups: a hundred tenants in a few lines.
//!
//! A group whose name holds a `#` stands for `count` groups, its members: in their names the number
//! of the member, from 1 on, is in its place. What is said of a family is said of each member;
//! weights and counts may fall with the number. Knows nothing of what groups are for.
//!
//! # Invariants
//! - N1: names differ, and the members of a family stand side by side.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use toml::Spanned;

use super::GroupIndex;
use super::expect::RESERVED;
use super::program::in_range;
use super::raw;
use super::source::Wrong;

/// Groups of a scenario.
pub(crate) const GROUPS_MAX: usize = 10_000;

/// What stands for the number of a member.
const NUMBER: char = '#';

/// Which member of its family a group is, from 1 on; 1 for a group that is no member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rank(usize);

/// A whole number, or one that falls with the rank.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Amount {
    Same(i64),
    /// This, divided by the rank.
    Zipf(f64),
}

impl Amount {
    /// The weight of the member of this rank: to the nearest, at least 1.
    pub(crate) fn weight(self, rank: Rank) -> i64 {
        self.rounded(rank, f64::round)
    }

    /// The count of the member of this rank: rounded up.
    pub(crate) fn count(self, rank: Rank) -> i64 {
        self.rounded(rank, f64::ceil)
    }

    fn rounded(self, rank: Rank, round: fn(f64) -> f64) -> i64 {
        match self {
            Amount::Same(number) => number,
            #[expect(clippy::cast_possible_truncation, reason = "saturates, and what is too large is refused")]
            Amount::Zipf(first) => (round(first / rank.0 as f64) as i64).max(1),
        }
    }
}

/// One `[[groups]]` table, and the groups that it stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    written: String,
    members: Range<usize>,
    is_family: bool,
}

/// The names of a scenario's groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Names {
    all: Vec<String>,
    index: HashMap<String, usize>,
    entries: Vec<Entry>,
}

impl Names {
    pub(crate) fn read(groups: &[raw::Group]) -> Result<Names, Wrong> {
        let mut names = Names { all: Vec::new(), index: HashMap::new(), entries: Vec::new() };
        for group in groups {
            names.add(group)?;
        }
        if names.all.is_empty() {
            return Err(Wrong::new(0..0, "no groups, expected at least one [[groups]]"));
        }
        Ok(names)
    }

    fn add(&mut self, group: &raw::Group) -> Result<(), Wrong> {
        let (written, at) = (group.name.get_ref(), group.name.span());
        let is_family = check_name(written, at.clone())?;
        let count = match (&group.count, is_family) {
            (Some(count), true) => in_range(count, "count", 1..GROUPS_MAX as i64 + 1)? as usize,
            (None, false) => 1,
            (Some(count), false) => {
                let message = format!("`count` beside the name of one group, expected a `{NUMBER}` in the name");
                return Err(Wrong::new(count.span(), message));
            }
            (None, true) => {
                let message = format!("`{written}` without `count`, expected how many groups it stands for");
                return Err(Wrong::new(at, message));
            }
        };
        let first = self.all.len();
        if count > GROUPS_MAX - first {
            return Err(Wrong::new(at, format!("too many groups, expected at most {GROUPS_MAX}")));
        }
        for number in 1..=count {
            let name = written.replace(NUMBER, &number.to_string());
            if self.index.insert(name.clone(), self.all.len()).is_some() {
                return Err(Wrong::new(at, format!("a second group `{name}`, expected names that differ")));
            }
            self.all.push(name);
        }
        self.entries.push(Entry { written: written.clone(), members: first..self.all.len(), is_family });
        Ok(())
    }

    /// The groups of the n-th `[[groups]]` table.
    pub(crate) fn members_of(&self, table: usize) -> impl Iterator<Item = (Rank, &str)> {
        let members = self.entries[table].members.clone();
        members.enumerate().map(|(before, index)| (Rank(before + 1), self.all[index].as_str()))
    }

    /// Whether the n-th `[[groups]]` table is a family.
    pub(crate) fn is_family(&self, table: usize) -> bool {
        self.entries[table].is_family
    }

    /// The groups that `name` names: one, or the members of a family.
    pub(crate) fn find(&self, name: &Spanned<String>) -> Result<Found, Wrong> {
        let written = name.get_ref();
        let family = self.entries.iter().find(|entry| entry.is_family && entry.written == *written);
        let found = match family {
            Some(family) => Some(Found { members: family.members.clone(), is_family: true }),
            None => self.index.get(written).map(|&index| Found { members: index..index + 1, is_family: false }),
        };
        found.ok_or_else(|| {
            Wrong::new(name.span(), format!("unknown group `{written}`, expected the name of one of [[groups]]"))
        })
    }

    /// The one group that `name` names.
    pub(crate) fn find_one(&self, name: &Spanned<String>) -> Result<GroupIndex, Wrong> {
        let found = self.find(name)?;
        if found.is_family {
            let message = format!("`{}` is a family, expected the name of one group", name.get_ref());
            return Err(Wrong::new(name.span(), message));
        }
        Ok(GroupIndex(found.members.start))
    }

    /// The names that `name` stands for in the name of a figure; `None` if there is no such group.
    pub(crate) fn in_figure(&self, name: &str) -> Option<&[String]> {
        let family = self.entries.iter().find(|entry| entry.is_family && entry.written == name);
        let members = family.map(|family| family.members.clone());
        let members = members.or_else(|| self.index.get(name).map(|&index| index..index + 1))?;
        Some(&self.all[members])
    }
}

/// The groups that a name stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    members: Range<usize>,
    pub(crate) is_family: bool,
}

impl Found {
    pub(crate) fn groups(&self) -> impl Iterator<Item = (Rank, GroupIndex)> + use<> {
        self.members.clone().enumerate().map(|(before, index)| (Rank(before + 1), GroupIndex(index)))
    }
}

/// Refuses an amount that falls with the rank where there is only one group.
pub(crate) fn check_amount(amount: &Spanned<Amount>, is_family: bool) -> Result<(), Wrong> {
    match amount.get_ref() {
        Amount::Zipf(first) if !(first.is_finite() && *first > 0.0) => {
            Err(Wrong::new(amount.span(), format!("zipf = {first}, expected a finite number above 0")))
        }
        Amount::Zipf(_) if !is_family => {
            let message = format!("`zipf` for one group, expected it only for a family, whose name holds a `{NUMBER}`");
            Err(Wrong::new(amount.span(), message))
        }
        Amount::Same(_) | Amount::Zipf(_) => Ok(()),
    }
}

/// Whether the name is that of a family.
fn check_name(name: &str, at: Range<usize>) -> Result<bool, Wrong> {
    let numbers = name.chars().filter(|&c| c == NUMBER).count();
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_' || c == NUMBER;
    if name.is_empty() || name.len() > 64 || numbers > 1 || !name.chars().all(plain) {
        let message = format!(
            "`{name}` as a name, expected 1 to 64 letters, digits, `-` and `_`, and one `{NUMBER}` for a family of groups"
        );
        return Err(Wrong::new(at, message));
    }
    if RESERVED.contains(&name) {
        return Err(Wrong::new(at, format!("`{name}` is reserved, expected another name")));
    }
    Ok(numbers == 1)
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Amount, D::Error> {
        from.deserialize_any(AmountVisitor)
    }
}

struct AmountVisitor;

impl<'de> Visitor<'de> for AmountVisitor {
    type Value = Amount;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number, or { zipf = NUMBER }")
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Amount, E> {
        Ok(Amount::Same(number))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Amount, A::Error> {
        const KINDS: &[&str] = &["zipf"];
        let kind: Option<String> = map.next_key()?;
        let first = match kind.as_deref() {
            Some("zipf") => map.next_value()?,
            Some(other) => return Err(de::Error::unknown_field(other, KINDS)),
            None => return Err(de::Error::custom("an empty table, expected { zipf = NUMBER }")),
        };
        match map.next_key::<String>()? {
            None => Ok(Amount::Zipf(first)),
            Some(other) => Err(de::Error::unknown_field(&other, KINDS)),
        }
    }
}
