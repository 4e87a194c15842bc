import { readdir, readFile } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { AgentError, errnoOf } from '../../../base/errors.ts'
import { unwrap } from '../../../os/errors.ts'
import { findAgentFolder, loadNative } from '../../../os/native.ts'
import { startChild } from '../../../os/process/child.ts'
import { SocketHandles } from '../../../os/sockets/socket-handles.ts'
import { linuxStreams } from '../../../os/streams/linux-streams.ts'
import { killIfAlive } from './ask-holder.ts'
import { connectToHolder, HolderClient, isAlive, startTimeOf } from './holder-client.ts'

/** For a holder that is not wanted to end by itself. */
const WAITING_END_MS = 1000

/** Between two looks at a holder that was killed. */
const LOOK_MS = 10

/** A holder that does nothing yet, also not in its folder, and that ends with this process until it holds. */
export interface WaitingHolder extends AsyncDisposable {
  /**
   * Has it hold its folder, in the cgroups with these folders; with a leash, the holder and all that it starts end with its connection to
   * this process. Rejects as {@link startHolder} does.
   */
  hold(cgroups: readonly string[], isLeashed?: boolean): Promise<HolderClient>
}

/** What starts holders. It takes half a millisecond to open. */
let opened: ReturnType<typeof open> | undefined

function open() {
  const native = loadNative(findAgentFolder(import.meta.filename))
  return { native, streams: linuxStreams(native), handles: new SocketHandles(native) }
}

/** Starts the program of a holder. `program` is the built `native/holder`. */
export function prepareHolder(folder: string, program: string): WaitingHolder {
  const started = startProgram(folder, program)
  let [holds, hasEnded] = [false, false]
  const ended = async () => {
    await (await started).child.exitCode
    hasEnded = true
  }
  // `hold` tells of a program that did not start. What has started is reaped here.
  ended().catch(() => {})
  return {
    hold: async (cgroups, isLeashed = false) => {
      // It was killed while it waited.
      if (hasEnded) return await prepareHolder(folder, program).hold(cgroups, isLeashed)
      try {
        const { socket } = await started
        const holder = await HolderClient.begin(socket, join(folder, 'holder.sock'), [
          isLeashed ? 'leash' : 'hold',
          ...cgroups,
        ])
        holds = true
        return holder
      } catch (error) {
        void started
          .then(({ child, socket }) => {
            socket.destroy()
            child.kill()
          })
          .catch(() => {})
        throw error instanceof AgentError
          ? new AgentError(error.code, `holder of ${folder}: ${error.message}`, { cause: error })
          : error
      }
    },
    [Symbol.asyncDispose]: async () => {
      if (holds) return
      const waiting = await started.catch(() => undefined)
      waiting?.socket.destroy()
      const timer = setTimeout(() => waiting?.child.kill(), WAITING_END_MS)
      await waiting?.child.exitCode.catch(() => {})
      clearTimeout(timer)
    },
  }
}

async function startProgram(folder: string, program: string) {
  opened ??= open()
  const { native, streams, handles } = opened
  const [own, its] = unwrap('open', 'a socket pair', native.socketPair())
  const socket = handles.socket(own)
  // Every error also closes the socket.
  socket.on('error', () => {})
  socket.allowHalfOpen = false
  try {
    // By vfork(2): a fork of this process copies its page tables.
    const child = await startChild(native, streams, {
      ...{ argv: [program, folder], name: undefined, cwd: '/' },
      // The holder and its children get nothing else of the daemon's environment.
      env: { PATH: process.env.PATH ?? '/usr/sbin:/usr/bin:/sbin:/bin' },
      ...{ stdio: [its, undefined, undefined], denied: [], hasTerminal: false },
    })
    return { child, socket }
  } catch (error) {
    socket.destroy()
    throw error
  } finally {
    native.close(its)
  }
}

/**
 * Starts a holder for an instance's folder, in the cgroups with these folders. Rejects with FAILED_PRECONDITION and what is missing when
 * no PID namespace can be made, and with ALREADY_EXISTS when the folder has a holder.
 */
export async function startHolder(
  folder: string,
  program: string,
  cgroups: readonly string[] = [],
): Promise<HolderClient> {
  return await prepareHolder(folder, program).hold(cgroups)
}

/**
 * The running holder of a folder, or undefined when there is none. Rejects with UNAVAILABLE when one does not answer,
 * and with FAILED_PRECONDITION when it has another version.
 */
export async function findHolder(folder: string): Promise<HolderClient | undefined> {
  const path = join(folder, 'holder.sock')
  try {
    return await HolderClient.open(await connectToHolder(path), path)
  } catch (error) {
    const errno = errnoOf(error)
    if (errno === 'ENOENT' || errno === 'ECONNREFUSED') return undefined
    throw error
  }
}

/** Kills the holder of a folder, which does not answer, by its command line. Resolves once all in its namespace has ended. */
export async function killHolder(folder: string): Promise<void> {
  for (const pid of (await readdir('/proc')).filter((name) => /^\d+$/.test(name))) {
    if (!(await isHolder(pid, folder))) continue
    const startTime = startTimeOf(Number(pid))
    killIfAlive(Number(pid))
    // Its command line is gone before its namespace has ended.
    while (isAlive(Number(pid), startTime)) await sleep(LOOK_MS)
  }
}

async function isHolder(pid: string, folder: string): Promise<boolean> {
  const words = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')
  const [program = '', argument] = words.split('\0')
  return basename(program) === 'holder' && argument === folder
}
