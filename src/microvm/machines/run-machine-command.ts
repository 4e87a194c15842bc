import { abortable } from '../../base/abort.ts'
import { AgentError, ConnectionLost, messageOf } from '../../base/errors.ts'
import { SERVERS } from '../../build/node-flags.mjs'
import type { Stdio } from '../../client/container/attach.ts'
import { START_FAILURE } from '../../client/container/start-failure.ts'
import { OutputClosed } from '../../client/container/stdio.ts'
import { type DaemonClient, NoDaemon, openDaemon } from '../../client/daemon/daemon-client.ts'
import { daemonSocket } from '../../client/daemon/daemon-socket.mjs'
import { plainText } from '../../client/output/text.ts'
import { Interrupted, type Interruptions } from '../../client/terminal/interruptions.ts'
import { inCallersTrace } from '../../rpc/trace-scope.ts'
import { UsageError } from '../command-line/usage-error.mjs'
import type { Reporter } from '../run/reporter.ts'
import type { RunMachineCommand } from './command.ts'

export interface MachineHost {
  readonly stdio: Stdio
  readonly env: Readonly<Record<string, string | undefined>>
  readonly reporter: Reporter
  readonly interruptions: Interruptions
}

/** Each command's module is loaded on use. `keys` is the question of a completion. */
const COMMANDS: Readonly<Record<string, () => Promise<RunMachineCommand>>> = {
  daemon: async () => (await import('./daemon.ts')).run,
  hypervisor: async () => (await import('./hypervisor.ts')).run,
  controller: async () => (await import('./controller.ts')).run,
  ensure: async () => (await import('./ensure.ts')).run,
  start: changeState,
  stop: changeState,
  pause: changeState,
  kill: changeState,
  reset: async () => (await import('./change-state.ts')).reset,
  rm: async () => (await import('./remove.ts')).run,
  plug: async () => (await import('./devices.ts')).plug,
  unplug: async () => (await import('./devices.ts')).unplug,
  replace: async () => (await import('./devices.ts')).replace,
  snapshot: async () => (await import('./snapshots.ts')).take,
  clone: async () => (await import('./saved.ts')).clone,
  snapshots: async () => (await import('./snapshots.ts')).list,
  revert: async () => (await import('./snapshots.ts')).revert,
  'rm-snapshot': async () => (await import('./snapshots.ts')).remove,
  merge: async () => (await import('./snapshots.ts')).remove,
  suspend: async () => (await import('./saved.ts')).suspend,
  resume: async () => (await import('./saved.ts')).resume,
  saved: async () => (await import('./saved.ts')).list,
  'rm-saved': async () => (await import('./saved.ts')).remove,
  migrate: async () => (await import('../hosts/move-commands.ts')).migrate,
  hosts: async () => (await import('../hosts/move-commands.ts')).list,
  drain: async () => (await import('../hosts/move-commands.ts')).drain,
  templates: async () => (await import('./templates.ts')).list,
  'rm-template': async () => (await import('./templates.ts')).remove,
  ps: async () => (await import('./show.ts')).list,
  calls: async () => (await import('./show.ts')).calls,
  metrics: async () => (await import('./show.ts')).metrics,
  inspect: async () => (await import('./show.ts')).inspect,
  keys: async () => (await import('./show.ts')).keys,
  events: async () => (await import('./events.ts')).run,
  console: async () => (await import('./console.ts')).run,
  secret: async () => (await import('./secret.ts')).run,
  doctor: async () => (await import('./check-host.ts')).run,
  expand: async () => (await import('./expand.ts')).run,
  diff: async () => (await import('./expand.ts')).diff,
}

/** The commands that change nothing. */
const READS = ['ps', 'hosts', 'snapshots', 'saved', 'templates', 'inspect', 'keys', 'calls', 'metrics']

async function changeState(): Promise<RunMachineCommand> {
  return (await import('./change-state.ts')).run
}

/** The daemon answered with an error. */
const FAILED = 1
const USAGE = 2
/** 128 + SIGPIPE, as of a program that does not handle it. */
const BROKEN_PIPE_STATUS = 141

/** Runs a command for machines of the daemon and returns the exit status. Reports an error in one line. */
export async function runMachineCommand(
  name: string,
  values: ReadonlyMap<string, string>,
  host: MachineHost,
): Promise<number> {
  const { env, interruptions, reporter } = host
  const { signal } = interruptions
  let opening: Promise<DaemonClient> | undefined
  const open = async () => {
    const socket = daemonSocket(values.get('socket'), env)
    // A server needs nothing of what shows answers.
    const { timeoutMs } = await import('./command.ts')
    return await openDaemon(socket, signal, timeoutMs({ values }))
  }
  const daemon = () => {
    opening ??= open()
    return opening
  }
  try {
    const load = COMMANDS[name]
    if (load === undefined) throw new UsageError(`${name}: no such command, see ./microvm --help`)
    const run = await load()
    const traceparent = SERVERS.includes(name) ? undefined : env.TRACEPARENT
    const work = inCallersTrace({ traceparent }, () => run({ ...host, name, values, signal, daemon }))
    return (await abortable(work, signal)) ?? 0
  } catch (error) {
    if (error instanceof Interrupted) return error.exitStatus
    if (error instanceof OutputClosed) return BROKEN_PIPE_STATUS
    reporter.failure(plainText(textOf(name, error).replace(/\s*\n\s*/g, ' ')), [])
    return statusOf(name, error)
  } finally {
    // Who opened it reports its failure.
    const client = await opening?.catch(() => undefined)
    client?.close()
  }
}

function textOf(name: string, error: unknown): string {
  if (!(error instanceof AgentError)) return messageOf(error)
  if (error instanceof ConnectionLost)
    return `${name}: the daemon closed the connection before its answer; its log tells why`
  if (error.code === 'DEADLINE_EXCEEDED')
    return `${name}: no answer in time${READS.includes(name) ? '' : ', and the change may go on: see ./microvm ps'}; wait longer with --timeout`
  return SERVERS.includes(name) || error instanceof NoDaemon
    ? error.message
    : `${name}: ${error.code}: ${error.message}`
}

function statusOf(name: string, error: unknown): number {
  if (error instanceof UsageError) return USAGE
  if (!(error instanceof AgentError) || error instanceof NoDaemon || error instanceof ConnectionLost)
    return START_FAILURE.cannotRun
  if (!SERVERS.includes(name)) return FAILED
  return error.code === 'INVALID_ARGUMENT' ? USAGE : START_FAILURE.cannotRun
}
