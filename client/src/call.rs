//! A call from its caller's side: find a route, hand over, wait, and go elsewhere with what was not executed.

use std::{
    ops::Range,
    time::{Duration, Instant},
};

use tokio::sync::mpsc;
use tollgate_protocol::limits::LINKED_MAX;

use crate::{
    decision::Decision,
    error::{Broken, CheckError},
    link::PushError,
    pending::{Answers, Failure, Outcome, Share, Waiter},
    request::Request,
    servers::{Servers, SubmitError},
    waiting::{Call, Waiting},
};

/// What callers get.
pub(crate) type Answer = Result<Decision, CheckError>;

/// One request, which has `time` in all.
pub(crate) async fn one(servers: &Servers, time: Duration, request: Request<'_>) -> Answer {
    request.verify(None, servers.registry().client_id())?;
    let deadline = deadline(time);
    loop {
        match servers.submit(&request, deadline) {
            Ok(receiver) => {
                let outcome = receiver.await.unwrap_or_else(|_| Err(Failure::Final(lost())));
                if let Some(answer) = answer(outcome, &request) {
                    return answer;
                }
            }
            Err(SubmitError::Moved) => {}
            Err(SubmitError::NoRoute) => servers.wait_for_route(deadline).await?,
            Err(SubmitError::Final(error)) => return Err(error),
        }
    }
}

/// The answer that an outcome means, or `None` where the request may be sent again.
fn answer(outcome: Outcome, request: &Request<'_>) -> Option<Answer> {
    match outcome {
        Ok(decision) => Some(Ok(decision.granted_for(request))),
        Err(Failure::NotExecuted) => None,
        Err(Failure::Final(CheckError::Ambiguous { .. })) if request.is_repeatable() => None,
        Err(Failure::Final(error)) => Some(Err(error)),
    }
}

/// The error of a request whose connection ended without a word.
fn lost() -> CheckError {
    CheckError::Ambiguous { server: "its server".into(), reason: Broken::TaskEnded.to_string().into() }
}

/// When a call that starts now has had its time.
fn deadline(time: Duration) -> Instant {
    tokio::time::Instant::now().into_std() + time
}

/// `count` requests that together have `time`, each of which `request` makes from its index.
pub(crate) async fn many<'a>(
    servers: &Servers,
    time: Duration,
    count: usize,
    request: impl Fn(usize) -> Request<'a>,
) -> Vec<Answer> {
    let mut call = Many::new(servers, time, count, request);
    let valid = call.verify();
    call.submit(valid);
    while call.outstanding > 0 || !call.parked.is_empty() {
        tokio::select! {
            Some(answers) = call.receiver.recv(), if call.outstanding > 0 => call.take(answers),
            routed = servers.wait_for_route(call.deadline), if !call.parked.is_empty() => {
                let parked = std::mem::take(&mut call.parked);
                match routed {
                    Ok(()) => call.submit(parked),
                    Err(error) => call.refuse(parked, &error),
                }
            }
        }
    }
    call.answers
}

struct Many<'s, F> {
    servers: &'s Servers,
    request: F,
    deadline: Instant,
    /// Of the requests, by index; of those without an answer yet, what it is where none comes.
    answers: Vec<Answer>,
    /// Index of the request at each position; a request has a new position each time it is handed over.
    positions: Vec<usize>,
    /// Requests that were handed over and not answered.
    outstanding: usize,
    /// Requests that wait for a route.
    parked: Vec<usize>,
    sender: mpsc::UnboundedSender<Answers>,
    receiver: mpsc::UnboundedReceiver<Answers>,
}

impl<'s, 'a, F: Fn(usize) -> Request<'a>> Many<'s, F> {
    fn new(servers: &'s Servers, time: Duration, count: usize, request: F) -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        Self {
            servers,
            request,
            deadline: deadline(time),
            answers: vec![Err(lost()); count],
            positions: Vec::with_capacity(count),
            outstanding: 0,
            parked: Vec::new(),
            sender,
            receiver,
        }
    }

    /// Refuses bad requests, each with those it is linked with, and returns the others.
    fn verify(&mut self) -> Vec<usize> {
        let count = self.answers.len();
        let mut valid = Vec::with_capacity(count);
        let mut start = 0;
        while start < count {
            let linked = (start..count).take_while(|&index| (self.request)(index).linked).count();
            let group = start..count.min(start + linked + 1);
            start = group.end;
            match self.verify_group(group.clone()) {
                Ok(()) => valid.extend(group),
                Err(error) => self.refuse(group, &error),
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

    fn refuse(&mut self, indices: impl IntoIterator<Item = usize>, error: &CheckError) {
        for index in indices {
            self.answers[index] = Err(error.clone());
        }
    }

    /// Hands requests to the connections of their keys, or parks them where there is none.
    fn submit(&mut self, indices: Vec<usize>) {
        let routes = self.servers.routes();
        let mut shares = vec![Vec::new(); routes.live().len()];
        if let [share] = &mut shares[..] {
            *share = indices;
        } else {
            for index in indices {
                match routes.index_of((self.request)(index).key) {
                    Some(route) => shares[route].push(index),
                    None => self.parked.push(index),
                }
            }
        }
        for (route, share) in routes.live().iter().zip(shares).filter(|(_, share)| !share.is_empty()) {
            let mut calls = self.hand_out(&share);
            let failure = match route.link.push_all(&mut calls, self.deadline) {
                Ok(()) => continue,
                Err(PushError::Closed) => Failure::NotExecuted,
                Err(PushError::Full(waiting)) => Failure::Final(self.servers.overload(route.server, waiting)),
            };
            calls.fail_all(&failure);
        }
    }

    fn hand_out(&mut self, indices: &[usize]) -> Waiting {
        let mut calls = Waiting::default();
        for &index in indices {
            calls.push_request(&(self.request)(index));
        }
        let share = Share::new(self.sender.clone(), self.positions.len(), indices.len());
        calls.push_call(Call { waiter: Waiter::Many(share), deadline: self.deadline });
        self.positions.extend_from_slice(indices);
        self.outstanding += indices.len();
        calls
    }

    /// Notes answers, and submits again what was not executed.
    fn take(&mut self, Answers { first, count, outcomes }: Answers) {
        self.outstanding -= count;
        let mut again = Vec::new();
        let outcomes = outcomes.unwrap_or_else(|| vec![Err(Failure::Final(lost())); count]);
        for (position, outcome) in (first..).zip(outcomes) {
            let index = self.positions[position];
            match answer(outcome, &(self.request)(index)) {
                Some(answer) => self.answers[index] = answer,
                None => again.push(index),
            }
        }
        if !again.is_empty() {
            self.submit(again);
        }
    }
}
