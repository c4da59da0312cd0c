//! A call of the script: the checks that it holds, its command, and what is decided by its answer.

use std::{ops::Range, sync::Arc};

use redis::Cmd;
use smallvec::SmallVec;
use tokio::time::Instant;
use tollgate_protocol::{check::CheckItem, reply::Reason};

use super::{
    Answer, Script,
    fields::Fields,
    plan::{Link, Plan},
};
use crate::{
    batch::Batch,
    limit::{Cells, Decision, Request, State, StateId, decide, decide::refuse},
};

/// Most states that a call touches: it holds its shard for 200 to 300 us.
pub(super) const FIELDS_MAX: usize = 160;

/// Most steps of a call, for keys that are asked different things again and again.
const STEPS_MAX: usize = 1_024;

/// Words of the command before the fields: EVALSHA, the script, 1, the hash, the time, the plan.
const WORDS: usize = 6;

/// A group of linked items of one batch.
#[derive(Clone, Debug)]
pub(in super::super) struct Group {
    /// Which of the batches that share a pipeline.
    pub(in super::super) work: usize,
    /// Its items.
    pub(in super::super) items: Range<usize>,
    /// For each item, the index of the first field of its policy and key.
    fields: Range<usize>,
}

/// A call under construction, and afterwards what is needed to send it and to read its answer.
#[derive(Debug)]
pub(in super::super) struct Call {
    /// The partition that all its keys are in.
    pub(in super::super) partition: usize,
    /// The groups that it answers.
    pub(in super::super) groups: Vec<Group>,
    fields: Fields,
    plan: Plan,
    /// First field of each item, of all groups.
    item_fields: Vec<u16>,
}

impl Call {
    /// A call that has room for about `groups` of them.
    pub(in super::super) fn new(partition: usize, groups: usize) -> Self {
        let fields_count = groups.min(FIELDS_MAX);
        Self {
            partition,
            groups: Vec::with_capacity(groups),
            fields: Fields::with_capacity(fields_count),
            plan: Plan::with_capacity(fields_count),
            item_fields: Vec::with_capacity(groups),
        }
    }

    /// Adds a group of valid items, or answers `false` where it has no room or reads a state by other rules.
    pub(in super::super) fn add(&mut self, work: usize, batch: &Batch, items: Range<usize>) -> bool {
        let group = &batch.items()[items.clone()];
        let requests = valid_requests(batch, group);
        let fields_new: usize = requests.iter().map(|request| request.limits.len()).sum();
        // An empty call has room for any group: `LINKED_MAX` checks of `LIMITS_MAX` limits each.
        let fits = self.fields.count() + fields_new <= FIELDS_MAX
            && self.plan.steps_count() + group.len() <= STEPS_MAX;
        if !(fits && requests.iter().all(|request| self.plan.knows_rules(request.limits))) {
            return false;
        }
        let start = self.item_fields.len();
        for (index, (item, request)) in group.iter().zip(&requests).enumerate() {
            let link = match group.len() {
                1 => Link::None,
                count if index + 1 == count => Link::Last,
                _ => Link::Next,
            };
            let ids = request.limits.iter().map(|limit| limit.state_id);
            let field_first = self.fields.add(ids, batch.key(item));
            self.item_fields.push(field_first);
            self.plan.add(request, link, field_first);
        }
        self.groups.push(Group { work, items, fields: start..self.item_fields.len() });
        true
    }

    /// Takes the groups out whose deadline has passed, and returns them.
    pub(in super::super) fn take_late(&mut self, batches: &[Arc<Batch>], now: Instant) -> Vec<Group> {
        let is_late = |group: &Group| batches[group.work].deadline.is_some_and(|deadline| deadline <= now);
        if !self.groups.iter().any(is_late) {
            return Vec::new();
        }
        let groups = std::mem::replace(self, Self::new(self.partition, self.groups.len())).groups;
        let (late, rest): (Vec<_>, Vec<_>) = groups.into_iter().partition(is_late);
        for group in rest {
            // They fitted together with others.
            self.add(group.work, &batches[group.work], group.items);
        }
        late
    }

    /// The command. `time` is what the script's prelude takes: a deadline by the shard's clock, or the time.
    pub(in super::super) fn command(
        &self,
        script: &Script,
        by_text: bool,
        redis_key: &str,
        time: u64,
    ) -> Cmd {
        let plan = self.plan.encode();
        let fields_bytes: usize = self.fields.names().map(<[u8]>::len).sum();
        let words_bytes = script.sha.len() + redis_key.len() + plan.len() + 64;
        let mut command = Cmd::with_capacity(WORDS + self.fields.count(), words_bytes + fields_bytes);
        let (name, text) = if by_text { ("EVAL", &script.text) } else { ("EVALSHA", &script.sha) };
        command.arg(name).arg(text).arg(1).arg(redis_key).arg(time).arg(plan);
        self.fields.names().for_each(|field| {
            command.arg(field);
        });
        command
    }

    /// Takes the steps of the script on the states that it found, and gives each group its decisions.
    pub(in super::super) fn decide(
        &self,
        answer: Answer,
        batches: &[Arc<Batch>],
        mut give: impl FnMut(&Group, &[Decision]),
    ) {
        let mut states = answer.states;
        let mut decisions = Vec::new();
        let mut layout = Vec::new();
        for group in &self.groups {
            let batch = &batches[group.work];
            let requests = valid_requests(batch, &batch.items()[group.items.clone()]);
            layout.clear();
            for (request, &first) in requests.iter().zip(&self.item_fields[group.fields.clone()]) {
                let fields = usize::from(first)..;
                layout.extend(request.limits.iter().map(|limit| limit.state_id).zip(fields));
            }
            decisions.resize(requests.len(), refuse(Reason::Unavailable));
            let mut cells = CallCells { states: &mut states, layout: &layout };
            decide(&requests, &mut cells, answer.now_us, &mut decisions);
            give(group, &decisions);
        }
    }

    /// Number of fields, which is the number of states in its answer.
    pub(in super::super) fn fields_count(&self) -> usize {
        self.fields.count()
    }

    /// Number of checks that it answers.
    pub(in super::super) fn items_count(&self) -> usize {
        self.item_fields.len()
    }

    /// What it does with its fields.
    #[cfg(test)]
    pub(super) fn plan(&self) -> &Plan {
        &self.plan
    }
}

/// The requests of a group. Only valid items are added to a call.
fn valid_requests<'a>(batch: &'a Batch, items: &[CheckItem]) -> SmallVec<[Request<'a>; 1]> {
    let mut requests = SmallVec::new();
    for item in items {
        // Pushed one by one: nearly all groups have one item, for which an iterator's bookkeeping costs more.
        if let Ok(request) = batch.request(item) {
            requests.push(request);
        }
    }
    requests
}

/// The states that a group touches, among those of its call.
struct CallCells<'a> {
    states: &'a mut [Option<State>],
    layout: &'a [(StateId, usize)],
}

impl CallCells<'_> {
    fn slot(&mut self, id: StateId) -> Option<&mut Option<State>> {
        let (_, index) = self.layout.iter().find(|(known, _)| *known == id)?;
        self.states.get_mut(*index)
    }
}

impl Cells for CallCells<'_> {
    fn get(&mut self, id: StateId) -> Option<State> {
        *self.slot(id)?
    }

    fn set(&mut self, id: StateId, state: Option<State>) {
        if let Some(slot) = self.slot(id) {
            *slot = state;
        }
    }
}
