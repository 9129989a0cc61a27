//! The work on one session: from its record to a joined agent, or to a failure that says why.

use std::{fs, process::ExitStatus, sync::Arc, time::Duration};

use myelin_executor::{OutputStream, ProviderError};
use myelin_state::{BootstrapStage, ErrorClass};
use tokio::{
    process::Child,
    time::{sleep, timeout},
};

use crate::{
    Options,
    blocking::unblock,
    command,
    end::{BETWEEN_LOOKS, N_LOOKS, end},
    proc::{Family, Marks, ProcessId},
    scan::Scanner,
    session::{Session, SessionRecord, marks_of, output_path, tail},
    tail::{CATCH_UP, last_line},
};

/// Pauses between two looks at what an ended start command left running. A look costs a walk over `/proc`.
const LOOKS: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(5)];

/// How often a process that is not our child is looked at: one small read in `/proc`.
const ADOPTED_LOOK: Duration = Duration::from_millis(250);

/// Pauses between two looks at files: short while something comes, long while nothing does.
const PAUSES: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(1)];

/// What the work needs besides the session.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) options: Options,
    pub(crate) boot_id: String,
    pub(crate) scanner: Scanner,
}

impl Context {
    /// Ends all processes of a family, after the grace they have.
    pub(crate) async fn end(&self, family: Family) -> Result<(), ProviderError> {
        let ended = end(&self.scanner, family, self.options.grace).await;
        ended.map_err(|error| ProviderError::new(ErrorClass::Transient, error.to_string()))
    }

    /// Returns whether any process carries the marks. One that cannot be looked for may well.
    async fn any(&self, marks: &Marks) -> bool {
        for _ in 0..N_LOOKS {
            let mut family = Family::new(marks.clone(), []);
            let looked = self.scanner.look().await;
            if !looked.is_ok_and(|snapshot| family.running(&snapshot).is_empty()) {
                return true;
            }
            sleep(BETWEEN_LOOKS).await;
        }
        false
    }
}

/// Works on a session until it is over, or until it is told to stop.
pub(crate) async fn supervise(context: Arc<Context>, session: Arc<Session>) {
    let work = async {
        let _stopped = session.stopped.clone().drop_guard();
        tokio::select! {
            () = session.stop.cancelled() => {}
            () = work(&context, &session) => session.silent.cancel(),
        }
    };
    let read = async {
        let _followed = session.followed.clone().drop_guard();
        tokio::select! {
            () = session.closing.cancelled() => {}
            () = follow(&session) => {}
        }
    };
    tokio::join!(work, read);
}

async fn work(context: &Context, session: &Session) {
    if let Err(error) = drive(context, session).await {
        tracing::warn!(key = %session.key, %error, "bootstrap cannot be worked on");
        session.give_up(&error).await;
    }
}

/// Why a bootstrap ends without a node.
struct Failure {
    stage: BootstrapStage,
    message: String,
}

async fn drive(context: &Context, session: &Session) -> Result<(), ProviderError> {
    session.report_stage().await;
    let SessionRecord { leader, stage, .. } = session.record().await.clone();
    let ended = match leader {
        Some(leader) => {
            // The one who started it may have got no further than to record it.
            session.advance(BootstrapStage::WaitingForSwactorJoin, None).await?;
            adopt(context, session, &leader).await
        }
        // It has its agent, whose identity could not be recorded.
        None if stage.is_terminal() => ended(context, session, None).await,
        None => bring_up(context, session).await?,
    };
    if let Err(Failure { stage, message }) = ended {
        session.advance(stage, Some(message)).await?;
    }
    Ok(())
}

/// Waits for a process that an earlier supervisor started.
async fn adopt(context: &Context, session: &Session, leader: &ProcessId) -> Result<(), Failure> {
    while leader.find(&context.boot_id).is_some() {
        sleep(ADOPTED_LOOK).await;
    }
    ended(context, session, None).await
}

async fn bring_up(
    context: &Context,
    session: &Session,
) -> Result<Result<(), Failure>, ProviderError> {
    use BootstrapStage::{
        BootChecking, SshConnecting, SshReady, SwactorStarting, WaitingForSwactorJoin,
    };
    if !session.record().await.is_untouched() {
        // What an earlier session, or an earlier supervisor of this one, left running.
        let marks = marks_of(&session.name, &session.lease);
        context.end(Family::new(marks, [])).await?;
    }
    session.advance(SshConnecting, None).await?;
    session.advance(SshReady, None).await?;
    let boot = session.record().await.boot.clone();
    if !boot.verify_commands.is_empty() {
        session.advance(BootChecking, None).await?;
    }
    for command in &boot.verify_commands {
        if let Err(failure) = check(context, session, command).await {
            return Ok(Err(failure));
        }
    }
    session.advance(SwactorStarting, None).await?;
    let record = session.record().await.clone();
    let mut child = match command::start(&context.options, &session.lease, &record) {
        Ok(child) => child,
        Err(error) => {
            return Ok(Err(Failure {
                stage: BootstrapStage::StartFailed,
                message: format!("cannot start the agent: {error}"),
            }));
        }
    };
    if let Some(leader) = identity(context, &child) {
        session.lead(leader).await?;
    }
    session.advance(WaitingForSwactorJoin, None).await?;
    let status = child.wait().await.ok();
    Ok(ended(context, session, status).await)
}

fn identity(context: &Context, child: &Child) -> Option<ProcessId> {
    let pid = i32::try_from(child.id()?).ok()?;
    ProcessId::of(&context.boot_id, pid)
}

/// Runs one verify command.
async fn check(context: &Context, session: &Session, text: &str) -> Result<(), Failure> {
    let failure = |what: String| Failure {
        stage: BootstrapStage::BootCheckFailed,
        message: format!("`{text}` {what}"),
    };
    let record = session.record().await.clone();
    let stderr = output_path(&session.lease, record.number, OutputStream::Stderr);
    let since = fs::metadata(&stderr).map_or(0, |stderr| stderr.len());
    let spawned = command::verify(&context.options, &session.lease, &record, text);
    let mut child = spawned.map_err(|error| failure(format!("cannot be run: {error}")))?;
    let deadline = context.options.verify_deadline;
    let Ok(waited) = timeout(deadline, child.wait()).await else {
        // Killing nothing but the shell would leave what it waits for.
        let family = Family::new(record.marks(&session.lease), []);
        if let Err(error) = context.end(family).await {
            tracing::warn!(key = %session.key, %error, "verify command goes on");
        }
        return Err(failure(format!("did not end within {deadline:?}")));
    };
    match waited {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => {
            let said = last_line(&stderr, since);
            Err(failure(format!("{}{}", describe(status), quote(said))))
        }
        Err(error) => Err(failure(format!("cannot be waited for: {error}"))),
    }
}

fn describe(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with status {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended".into(),
    }
}

fn quote(said: Option<String>) -> String {
    said.map(|said| format!(": {said}")).unwrap_or_default()
}

/// What the end of the start command means. One that exits with 0 may have left the agent running.
async fn ended(
    context: &Context,
    session: &Session,
    status: Option<ExitStatus>,
) -> Result<(), Failure> {
    if status.is_none_or(|status| status.success()) {
        let marks = session.record().await.marks(&session.lease);
        let [mut pause, longest] = LOOKS;
        while context.any(&marks).await {
            sleep(pause).await;
            pause = (pause * 2).min(longest);
        }
    }
    let record = session.record().await.clone();
    let lease = &session.lease;
    let said = [OutputStream::Stderr, OutputStream::Stdout];
    let said = said.map(|stream| last_line(&output_path(lease, record.number, stream), 0));
    let said = quote(said.into_iter().flatten().next());
    let how = status.map_or_else(|| "ended".into(), describe);
    Err(Failure {
        stage: BootstrapStage::SwactorJoinFailed,
        message: format!("agent {how} before it joined{said}"),
    })
}

/// Reports output until no more comes and all of it is read. Frees what nobody will read again.
async fn follow(session: &Session) {
    let mut tail = tail(&session.lease, &*session.record().await);
    let [shortest, longest] = PAUSES;
    let mut pause = shortest;
    let mut is_first = true;
    loop {
        let is_last = session.silent.is_cancelled();
        let (next, lines) = unblock(move || {
            let lines = match (is_first, is_last) {
                (_, true) => tail.read_out(),
                (true, false) => tail.catch_up(CATCH_UP),
                (false, false) => tail.poll(),
            };
            (tail, lines)
        })
        .await;
        tail = next;
        is_first = false;
        pause = if lines.is_empty() { (pause * 2).min(longest) } else { shortest };
        session.report_output(lines);
        if is_last {
            return;
        }
        let mut bases = tail.bases();
        if let (Some(stdout), Some(stderr)) = (bases.next(), bases.next()) {
            drop(bases);
            session.trim([stdout, stderr]).await;
        }
        tokio::select! {
            () = session.silent.cancelled() => {}
            () = sleep(pause) => {}
        }
    }
}
