import { randomUUID } from 'node:crypto'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { abortable } from '../../base/abort.ts'
import { didYouMean } from '../../base/suggest.mjs'
import { withTemporaryFolder } from '../../build/temporary-folder.ts'
import { connectOnce } from '../../client/connection/connect-agent.ts'
import type { Stdio } from '../../client/container/attach.ts'
import { agentOf, rootPathOf } from '../../client/container/container-session.ts'
import { type ContainerRequest, containerSpec } from '../../client/container/container-spec.ts'
import { openDaemon } from '../../client/daemon/daemon-client.ts'
import { daemonSocket } from '../../client/daemon/daemon-socket.mjs'
import { lastingSession } from '../../client/lasting-session.ts'
import type { Interruptions } from '../../client/terminal/interruptions.ts'
import { terminalSize } from '../../client/terminal/terminal.ts'
import { copySparse } from '../../host/migration/memory-file.ts'
import { isFromUserSpace } from '../../host/qemu/console-tail.ts'
import { daemonLink } from '../../host/qemu/vsock/choose-link.ts'
import { ensureContainerRoot } from '../../image/container-root.ts'
import { inCallersTrace } from '../../rpc/trace-scope.ts'
import { AGENT_WORDS, unknownWords } from '../../settings/command-line.ts'
import type { RunOptions } from '../command-line/parse.mjs'
import { UsageError } from '../command-line/usage-error.mjs'
import { bootFiles } from './boot-files.ts'
import {
  bootGuest,
  daemonPlace,
  type Guest,
  openOwnPlace,
  type Place,
  type RunnerEnvironment,
} from './boot-guest.ts'
import { checkMachine, machineSize } from './check-machine.ts'
import { openRoot, packRoot } from './container-root.ts'
import { containerOutOfMemoryText, lossOf, runFailure } from './guest-failure.ts'
import { containerRootSource, type GuestParts } from './guest-spec.ts'
import { metadataParts, readMetadata } from './metadata.ts'
import type { ImageConfig } from './oci-layout.ts'
import { type Reporter, Timings } from './reporter.ts'
import { runContainer } from './run-container.ts'
import type { RunMachine } from './run-machine.ts'
import { userInImage, userWord } from './user-in-image.ts'
import { checkWarmRoot, warmGuest, warmRootSource } from './warm-guest.ts'
import { type Publish, showAddress, withEntry } from './with-entry.ts'

export interface RunHost {
  readonly stdio: Stdio
  readonly environment: RunnerEnvironment
  readonly reporter: Reporter
  readonly interruptions: Interruptions
}

const CONTAINER_ID = 'container'
const HOSTNAME = 'microvm'
/** The guest unmounts and stops its container within moments or not at all. */
const POWER_OFF_GRACE_MS = 10_000

/** How long an agent may take to answer again after a loss. */
const RETURN_MS = 10_000

/** Runs a container in its own microVM and returns the exit status of its process. */
export async function runCommand(options: RunOptions, host: RunHost): Promise<number> {
  const { daemon: isInDaemon, warm } = options
  if (!isInDaemon && !warm)
    return await withEntry({ ...host, name: options.name }, (publish) => bootAndRun(options, host, publish))
  const { environment, interruptions, reporter } = host
  if (!warm && environment.MICROVM_VSOCK === 'tcp')
    throw new UsageError(`--daemon: MICROVM_VSOCK=tcp ${NO_USER_NETWORK}`)
  // Fails at once when no daemon runs.
  const daemon = await openDaemon(daemonSocket(options.socket, environment), interruptions.signal)
  daemon.close()
  return await inCallersTrace({ traceparent: environment.TRACEPARENT }, () =>
    bootAndRun(options, host, (address) => showAddress(reporter, address)),
  )
}

const NO_USER_NETWORK = "needs QEMU's user network, which the daemon refuses: run without --daemon"

async function bootAndRun(options: RunOptions, host: RunHost, publish: Publish): Promise<number> {
  const { interruptions } = host
  return await withTemporaryFolder(tmpdir(), async (folder) => {
    const preparing = prepare(options, folder, host)
    const { parts, what } = await abortable(preparing, interruptions.signal)
    // The first time, this fetches what the guest is reached by.
    const place = await placeOf(options, folder, host)
    const timings = new Timings(() => performance.now())
    const status = await inGuest({ options, host, parts, what, timings, place, publish })
    if (options.json) host.stdio.stderr.write(timings.json())
    else if (options.timings || isDemonstration(options)) host.stdio.stderr.write(timings.table())
    return status
  })
}

async function prepare(
  options: RunOptions,
  folder: string,
  { interruptions: { signal }, reporter }: RunHost,
): Promise<{ readonly parts: Omit<GuestParts, 'link'>; readonly what: WhatToRun }> {
  checkAppendedWords(options)
  const { memoryMib, machine, cpus, console } = options
  for (const warning of checkMachine({ memoryMib, cpus }, machineSize())) reporter.progress(warning)
  const word = options.user === undefined ? undefined : userWord(options.user)
  const given =
    options.metadata === undefined ? undefined : metadataParts(readMetadata(options.metadata), folder)
  if (
    options.daemon &&
    Object.values(given?.extra.backends ?? {}).some(({ kind }) => kind === 'user-network')
  )
    throw new UsageError(`--daemon: network_config of --metadata ${NO_USER_NETWORK}`)
  const { containerRoot, what } = await rootAndProcess(options, folder, { reporter, signal })
  const user = word === undefined ? what.user : await userInImage(word, containerRoot, signal)
  const boot = await bootFiles(options, reporter.progress)
  if (options.warm) checkWarmRoot(boot)
  // The words of the command line come last, so they win.
  const append = [...(given?.append ?? []), ...options.append]
  const machineParts = { boot, machine, memoryMib, cpus, console, append, containerRoot }
  return { parts: { ...machineParts, ...(given && { extra: given.extra }) }, what: { ...what, user } }
}

async function rootAndProcess(
  options: RunOptions,
  folder: string,
  { reporter, signal }: { readonly reporter: Reporter; readonly signal: AbortSignal },
): Promise<{ readonly containerRoot: string; readonly what: WhatToRun }> {
  const containerRoot = join(folder, 'container-root.ext4')
  if (options.rootfs === undefined) {
    const shared = await ensureContainerRoot(reporter.progress)
    // What a running guest is given is written.
    if (options.warm) await copySparse(shared, containerRoot)
    return { containerRoot: options.warm ? containerRoot : shared, what: whatToRun(options, undefined) }
  }
  const root = await openRoot(options.rootfs, folder, signal)
  const what = whatToRun(options, root.config)
  reporter.detail(`packing ${options.rootfs}`)
  await packRoot(root.folder, containerRoot, signal)
  return { containerRoot, what }
}

interface GuestRun {
  readonly options: RunOptions
  readonly host: RunHost
  readonly parts: Omit<GuestParts, 'link'>
  readonly what: WhatToRun
  readonly timings: Timings
  readonly place: Place
  readonly publish: Publish
}

/** Boots the guest, runs the container and powers the guest off. Throws what {@link runFailure} returns when the guest fails. */
async function inGuest(run: GuestRun): Promise<number> {
  const { host, timings } = run
  let vm: RunMachine | undefined
  const started = (running: RunMachine) => {
    vm = running
    running.console.onLine((line) => {
      if (isFromUserSpace(line) && !run.options.warm) timings.end('kernel')
      host.reporter.console(line)
    })
  }
  try {
    const guest = run.options.warm ? await cloneOfTemplate(run, started) : await boot(run, started)
    run.publish(guest.address)
    try {
      return await containerThenPowerOff(guest, run)
    } catch (error) {
      throw await lossOf(error, guest)
    } finally {
      await guest.close()
    }
  } catch (error) {
    if (host.interruptions.signal.aborted) throw host.interruptions.signal.reason
    throw vm === undefined ? error : runFailure(error, vm.console.lines, run.parts.memoryMib)
  }
}

async function boot(
  { host, parts, place, timings }: GuestRun,
  started: (vm: RunMachine) => void,
): Promise<Guest> {
  const { interruptions, reporter } = host
  reporter.detail('starting QEMU')
  const endWait = reporter.wait('booting the guest')
  const { signal } = interruptions
  const guest = await bootGuest({ parts, place, started, progress: reporter.progress, signal }).finally(
    endWait,
  )
  timings.end('agent')
  return guest
}

async function cloneOfTemplate(
  { host, parts, place, timings }: GuestRun,
  started: (vm: RunMachine) => void,
): Promise<Guest> {
  const { interruptions, reporter } = host
  const { key, socket } = place
  return await warmGuest({ parts, socket, key, started, reporter, timings, signal: interruptions.signal })
}

async function placeOf(
  options: RunOptions,
  folder: string,
  { environment, interruptions, reporter }: RunHost,
): Promise<Place> {
  if (!options.daemon && !options.warm)
    return await openOwnPlace({
      folder,
      environment,
      progress: reporter.progress,
      signal: interruptions.signal,
    })
  const { name: key = randomUUID() } = options
  return daemonPlace(daemonSocket(options.socket, environment), key, daemonLink(environment.MICROVM_VSOCK))
}

async function containerThenPowerOff(guest: Guest, run: GuestRun): Promise<number> {
  const { host, options, parts, timings, what } = run
  const signal = AbortSignal.any([host.interruptions.signal, guest.vm.gone])
  const connection = lastingSession(guest.connection, {
    dial: (each) => connectOnce({ connect: guest.connect }, each),
    returnMs: RETURN_MS,
    onLoss: () => host.stdio.stderr.write('microvm: the connection was lost, dialling again\r\n'),
    signal,
  })
  const agent = agentOf(connection)
  const rootPath = rootPathOf(CONTAINER_ID)
  const terminal = options.tty ? terminalSize(host.stdio) : undefined
  const spec = containerSpec({ ...what, id: CONTAINER_ID, hostname: HOSTNAME, rootPath, terminal })
  const source = options.warm ? warmRootSource(parts) : containerRootSource(parts)
  const rootDisk = { source, mountPoint: rootPath }
  const { status, isOutOfMemory } = await runContainer({
    agent,
    container: { id: CONTAINER_ID, hostname: HOSTNAME, spec, rootDisk },
    stdio: host.stdio,
    tty: options.tty,
    passInput: passesInput(options, host.stdio.stdin),
    timings,
    interruptions: host.interruptions,
    signal,
  })
  if (isOutOfMemory) host.reporter.progress(containerOutOfMemoryText(parts.memoryMib))
  // Of a clone nothing is kept, which its guest would have to write.
  if (options.warm) return status
  try {
    await agent.destroySandbox({}, { timeoutMs: POWER_OFF_GRACE_MS, signal })
    // The agent waits for its clients before it stops.
    connection.close()
    await guest.vm.awaitEnd(POWER_OFF_GRACE_MS)
    timings.end('power-off')
  } catch (error) {
    // The container's status stays valid and the guest ends either way; it may be gone before it answers.
    if (host.interruptions.signal.aborted) throw error
    host.reporter.detail(`the guest did not power off: ${String(error)}`)
  }
  return status
}

/** Throws {@link UsageError} for an `agent.*` word that the agent does not know. The agent of `--image` may know others. */
export function checkAppendedWords({ append, image }: Pick<RunOptions, 'append' | 'image'>): void {
  const [word] = image === undefined ? unknownWords(append.join(' ')) : []
  if (word === undefined) return
  const remedy = didYouMean(word, AGENT_WORDS, 'want one of docs/reference/settings.md')
  throw new UsageError(`--append ${word}: unknown setting${remedy}`)
}

/** The part of a container's request that depends on both the command line and the image. */
export type WhatToRun = Pick<ContainerRequest, 'args' | 'env' | 'cwd' | 'user'>

/** The command of the demonstration. */
const DEMONSTRATION = [
  'sh',
  '-c',
  `echo "Hello from a container in a microVM."
echo "kernel:    $(uname -sr)"
echo "hostname:  $(hostname)"
echo "processes: $(ps | tail -n +2 | wc -l) in this container"
echo "memory:    $(awk '/MemTotal/ { print int($2 / 1024) " MiB" }' /proc/meminfo)"`,
]

/** Whether the demonstration runs: the command line names neither a command nor a root filesystem. */
function isDemonstration(options: Pick<RunOptions, 'command' | 'rootfs'>): boolean {
  return options.command.length === 0 && options.rootfs === undefined
}

/** Whether the process gets the tool's stdin: with a terminal on either side only with -i, as with docker. */
export function passesInput(
  { interactive, tty }: Pick<RunOptions, 'interactive' | 'tty'>,
  stdin: { readonly isTTY?: boolean },
): boolean {
  return interactive || !(tty || stdin.isTTY === true)
}

/**
 * The process to run: the command line takes precedence over the image, and the image over the defaults. A command on
 * the command line replaces the image's command and keeps its entrypoint. Throws {@link UsageError} when neither has a
 * command.
 */
export function whatToRun(
  options: Pick<RunOptions, 'command' | 'rootfs' | 'env' | 'workdir'>,
  image: ImageConfig | undefined,
): WhatToRun {
  const command = options.command.length > 0 ? options.command : (image?.command ?? [])
  const args = isDemonstration(options) ? DEMONSTRATION : [...(image?.entrypoint ?? []), ...command]
  if (args.length === 0) throw new UsageError('this root filesystem has no command of its own: give one')
  const root = { uid: 0, gid: 0, additionalGids: [] }
  return {
    args,
    env: [...(image?.env ?? []), ...options.env],
    cwd: options.workdir ?? image?.cwd ?? '/',
    user: image?.user ?? root,
  }
}
