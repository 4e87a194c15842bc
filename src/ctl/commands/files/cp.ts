import { type ChildProcess, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { lstatSync, opendirSync, statSync } from 'node:fs'
import { basename, dirname, join, posix, resolve } from 'node:path'
import { PassThrough, Transform, Writable } from 'node:stream'
import { messageOf } from '../../../base/errors.ts'
import { attach } from '../../../client/attach.ts'
import { type Agent, agentOf } from '../../../client/container-session.ts'
import { addedProcess } from '../../../client/container-spec.ts'
import { copyRequests } from '../../../client/copy-file.ts'
import { fileFailure } from '../../../client/file-failure.ts'
import { agentCalls, callFailure } from '../../clients.ts'
import { CommandFailure, type Context, EXIT, UsageError } from '../../command.ts'
import { Progress } from '../../output/progress.ts'
import { startFailure } from '../containers/start-failure.ts'

/** `agent-ctl cp SOURCE TARGET`. */
export async function run(context: Context): Promise<undefined> {
  const { values } = context
  const [source, target] = [values.argument('SOURCE'), values.argument('TARGET')]
  const progress = new Progress(context.io.stderr)
  try {
    if (values.flag('guest')) await copyIntoGuest(context, source, target, progress)
    else await copyByTar(context, placeOf(source), placeOf(target), progress)
  } finally {
    progress.end()
  }
}

interface Place {
  /** Undefined for this machine. */
  readonly container: string | undefined
  readonly path: string
}

/** `CONTAINER:PATH`, or a path of this machine; one with a colon begins with `/` or `./`. */
function placeOf(text: string): Place {
  const [, container, path] = /^([^:/.][^:/]*):(.*)$/s.exec(text) ?? []
  if (container === undefined || path === undefined) return { container: undefined, path: text }
  if (!path.startsWith('/')) throw new UsageError(`${text}: want an absolute path after the colon`)
  return { container, path }
}

async function copyByTar(context: Context, source: Place, target: Place, progress: Progress): Promise<void> {
  if (source.container !== undefined && target.container === undefined) {
    checkFolder(target.path)
    const { dir, base } = posix.parse(posix.resolve(source.path))
    const local = tar(['-x', '-C', target.path])
    await joined(context, source.container, ['tar', '-c', '-f', '-', '-C', dir, base || '.'], local, progress)
  } else if (source.container === undefined && target.container !== undefined) {
    const path = resolve(source.path)
    checkPresent(path)
    const local = tar(['-c', '-C', dirname(path), basename(path) || '.'])
    await joined(context, target.container, ['tar', '-x', '-f', '-', '-C', target.path], local, progress)
  } else {
    throw new UsageError(
      'cp: want CONTAINER:PATH for the source or the target, and a path of this machine for the other',
    )
  }
}

function checkPresent(path: string): void {
  try {
    lstatSync(path)
  } catch (error) {
    throw new UsageError(fileFailure(path, error), { cause: error })
  }
}

function checkFolder(path: string): void {
  checkPresent(path)
  if (!statSync(path).isDirectory()) throw new UsageError(`${path}: not a folder, want one to copy into`)
}

function tar(words: readonly string[]): ChildProcess {
  return spawn('tar', [words[0] ?? '', '-f', '-', ...words.slice(1)], { stdio: ['pipe', 'pipe', 'pipe'] })
}

/** Runs a program in a container, whose stdout or stdin is that of a tar of this machine. */
async function joined(
  context: Context,
  containerId: string,
  args: readonly string[],
  local: ChildProcess,
  progress: Progress,
): Promise<void> {
  const said: Buffer[] = []
  local.stderr?.on('data', (chunk: Buffer) => said.push(chunk))
  // A local tar that ends early fails by its status; a write to it may fail first.
  local.stdin?.on('error', () => {})
  const ended = once(local, 'close').catch((error: unknown) => {
    throw new CommandFailure(EXIT.cannotRun, `tar: ${messageOf(error)}, want tar installed`)
  })
  ended.catch(() => {})
  try {
    const agent = agentOf(await context.session())
    const status = await runIn(context, agent, containerId, args, { local, progress, said })
    const [code] = await ended
    if (status !== 0 || code !== 0) throw new CommandFailure(EXIT.failed, tarText(said, status))
  } finally {
    local.kill()
  }
}

function tarText(said: readonly Buffer[], status: number): string {
  const text = Buffer.concat(said).toString().trim().replaceAll('\n', '; ')
  return `cp: ${text === '' ? `tar in the container ended with ${status}` : text}`
}

async function runIn(
  { interruptions, signal }: Context,
  agent: Agent,
  containerId: string,
  args: readonly string[],
  { local, progress, said }: { local: ChildProcess; progress: Progress; said: Buffer[] },
): Promise<number> {
  const process = { containerId, execId: `ctl-cp-${randomBytes(6).toString('hex')}` }
  const user = { uid: 0, gid: 0, additionalGids: [] }
  const request = addedProcess({ args, env: [], cwd: '/', user, terminal: undefined })
  try {
    await agent.execProcess({ ...process, process: request }, { signal })
  } catch (error) {
    throw startFailure('ExecProcess', error)
  }
  const counted = new Transform({
    transform: (chunk: Buffer, _encoding, done) => {
      progress.add(chunk.length)
      done(null, chunk)
    },
  })
  const isExtracting = args[1] === '-x'
  const stderr = new Writable({
    write: (chunk: Buffer, _encoding, done) => {
      said.push(Buffer.from(chunk))
      done()
    },
  })
  const stdin = isExtracting && local.stdout !== null ? local.stdout.pipe(counted) : new PassThrough().end()
  const stdout = isExtracting || local.stdin === null ? new PassThrough().resume() : counted
  if (!isExtracting && local.stdin !== null) counted.pipe(local.stdin)
  try {
    const stdio = { stdin, stdout, stderr }
    return await attach({ agent, process, stdio, tty: false, passInput: isExtracting, interruptions, signal })
  } catch (error) {
    throw callFailure('cp', error)
  } finally {
    // The local tar sees the end after all that came before it.
    if (!isExtracting) counted.end()
  }
}

/** Copies a tree by CopyFile, entry by entry. */
async function copyIntoGuest(
  context: Context,
  source: string,
  target: string,
  progress: Progress,
): Promise<void> {
  checkPresent(source)
  const agent = await agentCalls(context)
  for (const [from, to] of entriesOf(resolve(source), target)) {
    for await (const request of copyRequests(from, to)) {
      await agent.copyFile(request)
      progress.add(request.data?.length ?? 0)
    }
  }
}

/** A file or folder with everything in it, each with its place in the guest; a folder comes before what is in it. */
function* entriesOf(source: string, target: string): Generator<readonly [string, string], void, undefined> {
  yield [source, target]
  if (!lstatSync(source).isDirectory()) return
  const folder = opendirSync(source)
  try {
    for (let entry = folder.readSync(); entry !== null; entry = folder.readSync())
      yield* entriesOf(join(source, entry.name), posix.join(target, entry.name))
  } finally {
    folder.closeSync()
  }
}
