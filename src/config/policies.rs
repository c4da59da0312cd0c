//! The named policies: each limit is parsed and checked that it can be enforced exactly.

use std::collections::BTreeMap;

use tollgate_protocol::{
    limit::{Limit, ParseLimitError},
    limits::{LIMITS_MAX, NAME_BYTES_MAX, POLICIES_MAX},
    policy::{Limits, is_name},
};

use super::{
    PolicyConfig,
    check::{in_file, whole},
    defaults,
    error::{Origin, Problems},
    file::PolicySection,
};
use crate::{
    limit::{Rule, UnsupportedLimit},
    policy::OnUnavailable,
};

/// The policies that do; the others are told.
pub(super) fn check_policies(
    problems: &mut Problems<'_>,
    sections: BTreeMap<String, PolicySection>,
    on_unavailable: OnUnavailable,
) -> Vec<PolicyConfig> {
    if sections.len() > POLICIES_MAX {
        let count = sections.len();
        problems.add(
            &Origin::Key("policies".to_owned()),
            format_args!(": {count} policies are too many: keep at most {POLICIES_MAX}"),
        );
    }
    let check = |(name, section)| check_policy(problems, name, section, on_unavailable);
    sections.into_iter().filter_map(check).collect()
}

fn check_policy(
    problems: &mut Problems<'_>,
    name: String,
    section: PolicySection,
    on_unavailable: OnUnavailable,
) -> Option<PolicyConfig> {
    let is_named = is_name(&name);
    let key = if is_named { format!("policies.{name}") } else { format!("policies.{name:?}") };
    if !is_named {
        problems.add(
            &Origin::Key(key.clone()),
            format_args!(
                ": this is not a name: write 1 to {NAME_BYTES_MAX} ASCII letters, digits, `-`, `_`, `.`, `/`"
            ),
        );
    }
    let percent = in_file(&format!("{key}.enforce_percent"), section.enforce_percent);
    let enforce_percent = whole(problems, &defaults::ENFORCE_PERCENT, percent) as u8;
    let limits = check_limits(problems, &key, &section.limits)?;
    let on_unavailable = section.on_unavailable.unwrap_or(on_unavailable);
    is_named.then_some(PolicyConfig { name, limits, on_unavailable, enforce_percent })
}

fn check_limits(problems: &mut Problems<'_>, policy_key: &str, texts: &[String]) -> Option<Limits> {
    let key = format!("{policy_key}.limits");
    let mut limits = Vec::new();
    for (index, text) in texts.iter().enumerate() {
        match parse_limit(text) {
            Ok(limit) => limits.push(limit),
            Err(error) => problems.add(&Origin::Key(format!("{key}[{index}]")), format_args!(": {error}")),
        }
    }
    if !(1..=LIMITS_MAX).contains(&texts.len()) {
        let count = texts.len();
        let text = format!(" has {count} entries: write 1 to {LIMITS_MAX}, e.g. [\"token-bucket:100/1m\"]");
        problems.add(&Origin::Key(key), text);
    }
    Limits::new(limits)
}

/// Why a text is not a limit that can be enforced.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// It is not a limit.
    #[error(transparent)]
    Parse(#[from] ParseLimitError),
    /// It cannot be enforced exactly.
    #[error(transparent)]
    Unsupported(#[from] UnsupportedLimit),
}

/// A limit that can be enforced exactly.
///
/// # Errors
/// [`LimitError`].
pub fn parse_limit(text: &str) -> Result<Limit, LimitError> {
    let limit = text.parse()?;
    Rule::new(&limit)?;
    Ok(limit)
}
