//! A call of many requests from its caller's side.

use std::{
    future::{Future, poll_fn},
    ops::Range,
    pin::Pin,
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};

use tollgate_protocol::limits::LINKED_MAX;

use crate::{
    call::{deadline, may_repeat},
    error::CheckError,
    link::PushError,
    request::Request,
    servers::{Route, Servers},
    slots::{Answer, Outcome, SlotId},
    ticket::Ticket,
    waiting::{Size, Waiting},
};

/// `count` requests that together have `time`, each of which `request` makes from its index.
pub(crate) async fn many<'a>(
    servers: &Servers,
    time: Duration,
    count: usize,
    request: impl Fn(usize) -> Request<'a>,
) -> Vec<Answer> {
    let mut call = Many {
        servers,
        request,
        deadline: deadline(time),
        shares: Vec::new(),
        unsent: Vec::new(),
        answers: Answers { count, known: Vec::new() },
    };
    call.unsent = call.verify();
    loop {
        call.submit();
        if call.is_done() {
            return call.answers.known;
        }
        tokio::select! {
            biased;
            (indices, outcome) = first_done(&mut call.shares), if !call.shares.is_empty() => {
                call.take(indices, outcome);
            }
            routed = servers.wait_for_route(call.deadline), if !call.unsent.is_empty() => {
                if let Err(error) = routed {
                    call.refuse_unsent(&error);
                }
            }
        }
    }
}

/// Requests by their indices.
type Indices = Vec<usize>;

struct Many<'s, F> {
    servers: &'s Servers,
    request: F,
    deadline: Instant,
    /// What was handed over.
    shares: Vec<(Indices, Ticket)>,
    /// What is to be handed over, in order.
    unsent: Indices,
    answers: Answers,
}

impl<'a, F: Fn(usize) -> Request<'a>> Many<'_, F> {
    /// Refuses bad requests, each with those it is linked with, and returns the others.
    fn verify(&mut self) -> Indices {
        let mut valid = Vec::with_capacity(self.answers.count);
        let mut start = 0;
        while start < self.answers.count {
            let linked =
                (start..self.answers.count).take_while(|&index| (self.request)(index).linked).count();
            let group = start..self.answers.count.min(start + linked + 1);
            start = group.end;
            match self.verify_group(group.clone()) {
                Ok(()) => valid.extend(group),
                Err(error) => self.answers.refuse(&group.collect::<Indices>(), &error),
            }
        }
        valid
    }

    fn verify_group(&self, group: Range<usize>) -> Result<(), CheckError> {
        if group.len() > LINKED_MAX {
            return Err(CheckError::LinkTooLong { requests: group.len() });
        }
        let client_id = self.servers.registry().client_id();
        for index in group.clone() {
            let next = (index + 1 < group.end).then(|| (self.request)(index + 1));
            (self.request)(index).verify(next.as_ref(), client_id)?;
        }
        Ok(())
    }

    fn refuse_unsent(&mut self, error: &CheckError) {
        let unsent = std::mem::take(&mut self.unsent);
        self.answers.refuse(&unsent, error);
    }

    /// Hands what is unsent to the connections of its keys. Where there is none it stays.
    fn submit(&mut self) {
        let mut unsent = std::mem::take(&mut self.unsent);
        let routes = self.servers.routes();
        match routes.live() {
            [] => self.unsent = unsent,
            _ if unsent.is_empty() => {}
            [route] => self.hand_over(route, &unsent),
            live => {
                let mut shares = vec![Vec::new(); live.len()];
                for index in unsent.drain(..) {
                    match routes.index_of((self.request)(index).key) {
                        Some(route) => shares[route].push(index),
                        None => self.unsent.push(index),
                    }
                }
                for (route, share) in live.iter().zip(&shares).filter(|(_, share)| !share.is_empty()) {
                    self.hand_over(route, share);
                }
            }
        }
    }

    /// Hands requests to a connection, as many in a call as fit in a frame.
    fn hand_over(&mut self, route: &Route, indices: &[usize]) {
        let frame = route.link.frame();
        let part_max = indices.len().min(frame.requests);
        let (mut calls, mut parts, mut part) = (Waiting::default(), Vec::new(), Vec::with_capacity(part_max));
        calls.reserve(indices.len(), (self.request)(indices[0]).key.len());
        for group in indices.chunk_by(|&index, _| (self.request)(index).linked) {
            let size = Size::of_group(group.len(), (self.request)(group[0]).key.len());
            if !size.fits_in(&frame) {
                let error = CheckError::LinkTooLong { requests: group.len() };
                self.answers.refuse(group, &error);
                continue;
            }
            if !(calls.open() + size).fits_in(&frame) {
                calls.push_call(SlotId::default(), self.deadline);
                parts.push(std::mem::replace(&mut part, Vec::with_capacity(part_max)));
            }
            calls.push_group(size, group.iter().map(|&index| (self.request)(index)));
            part.extend_from_slice(group);
        }
        if !part.is_empty() {
            calls.push_call(SlotId::default(), self.deadline);
            parts.push(part);
        }
        self.push(route, calls, parts);
    }

    fn push(&mut self, route: &Route, mut calls: Waiting, parts: Vec<Indices>) {
        match route.link.push_all(&mut calls, self.deadline) {
            Ok(slots) => {
                let tickets = slots.into_iter().map(|slot| Ticket::new(Arc::clone(&route.link), slot));
                self.shares.extend(parts.into_iter().zip(tickets));
            }
            Err(PushError::Closed) => self.send_again(parts.into_iter().flatten()),
            Err(PushError::Full(waiting)) => {
                let error = self.servers.overload(route.server, waiting);
                parts.iter().for_each(|part| self.answers.refuse(part, &error));
            }
        }
    }

    /// Notes the outcome of what was handed over. What was not executed is unsent again.
    fn take(&mut self, indices: Indices, outcome: Outcome) {
        match outcome {
            Outcome::One(answer) => self.answers.place(&indices, vec![answer]),
            Outcome::Many(answers) => self.answers.place(&indices, answers),
            Outcome::NotExecuted => self.send_again(indices),
            Outcome::Failed(error) => {
                let repeatable = |&index: &usize| may_repeat(&error, &(self.request)(index));
                let (again, failed): (Indices, Indices) = indices.into_iter().partition(repeatable);
                self.answers.refuse(&failed, &error);
                self.send_again(again);
            }
        }
    }

    fn send_again(&mut self, indices: impl IntoIterator<Item = usize>) {
        self.unsent.extend(indices);
        self.unsent.sort_unstable();
    }

    fn is_done(&self) -> bool {
        self.unsent.is_empty() && self.shares.is_empty()
    }
}

/// Waits for the first outcome of what was handed over.
async fn first_done(shares: &mut Vec<(Indices, Ticket)>) -> (Indices, Outcome) {
    let (at, outcome) = poll_fn(|context| {
        for (at, (_, ticket)) in shares.iter_mut().enumerate() {
            if let Poll::Ready(outcome) = Pin::new(ticket).poll(context) {
                return Poll::Ready((at, outcome));
            }
        }
        Poll::Pending
    })
    .await;
    (shares.remove(at).0, outcome)
}

/// The answers to a call.
struct Answers {
    /// Requests of the call.
    count: usize,
    /// By the indices of the requests, as far as they are known.
    known: Vec<Answer>,
}

impl Answers {
    /// Puts the answers to requests, in order, in their places. Those that follow the ones before, as they mostly
    /// do, are moved as a whole.
    fn place(&mut self, indices: &[usize], answers: Vec<Answer>) {
        let (Some(&first), Some(&last)) = (indices.first(), indices.last()) else { return };
        if first == self.known.len() && last - first == indices.len() - 1 {
            if self.known.is_empty() {
                self.known = answers;
                self.known.reserve_exact(self.count - indices.len());
            } else {
                self.known.extend(answers);
            }
            return;
        }
        if self.known.len() <= last {
            // Each is replaced by the answer before the call is done.
            self.known.resize_with(last + 1, || Err(CheckError::BadLink));
        }
        for (&index, answer) in indices.iter().zip(answers) {
            self.known[index] = answer;
        }
    }

    /// Gives each of these requests the same error.
    fn refuse(&mut self, indices: &[usize], error: &CheckError) {
        self.place(indices, vec![Err(error.clone()); indices.len()]);
    }
}
