import { chmod, chown, lstat, mkdir } from 'node:fs/promises'
import { createServer, type Server, type Socket } from 'node:net'
import { dirname } from 'node:path'
import { AgentError, errnoOf, messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { failed, fromNodeError } from '../../os/errors.ts'
import { removeStaleSocket } from '../../os/sockets/stale-socket.ts'
import type { ServedConnection } from '../../rpc/connection.ts'
import type { ReadDescriptors } from '../../rpc/grpc/reflection.ts'
import { serveGrpc } from '../../rpc/grpc/server.ts'
import type { Totals } from '../../rpc/limits.ts'
import type { CheckCall } from '../../rpc/method.ts'
import { startTimer } from '../../rpc/timer.ts'
import { MAX_STATE_FOLDER_BYTES } from '../instance/limits.ts'
import type { ServedTables } from './serve.ts'

export interface SocketPlan extends ServedPlan {
  readonly path: string
  /** Owner of the socket; undefined for the daemon's own user. */
  readonly uid: number | undefined
}

export interface ServedPlan {
  /** Names the callers of this socket in the log. */
  readonly peer: string
  readonly tables: ServedTables
  /** The limits of this socket's callers together, so that one tenant takes nothing from the others. */
  readonly totals: Totals
  /** Checks calls of health and reflection; by default all may make them. */
  readonly checkCall?: CheckCall
}

/** Bytes of a path that bind(2) takes. */
const MOST_PATH_BYTES = 107

/** Of an answer: a list has the specifications of all instances. */
const ANSWER_BYTES = 32 * 1024 * 1024

/** How long calls may go on after `close`. */
const CLOSE_MS = 5000

/** Serves the API on unix sockets, whose owner alone may connect. */
export class ApiSockets {
  readonly #shared: {
    readonly log: Logger
    readonly readDescriptors: ReadDescriptors
  }
  readonly #servers: Server[] = []
  readonly #open = new Map<Socket, ServedConnection>()

  constructor(shared: { readonly log: Logger; readonly readDescriptors: ReadDescriptors }) {
    this.#shared = shared
  }

  /** Replaces a socket that no process listens on. Throws FAILED_PRECONDITION when one does. */
  async listen(plan: SocketPlan): Promise<void> {
    const { path, uid } = plan
    if (Buffer.byteLength(path) > MOST_PATH_BYTES)
      throw refused(path, `longer than ${MOST_PATH_BYTES} bytes, want a shorter --state or --socket`)
    await removeStaleSocket(path)
    const server = createServer((socket) => this.serve(socket, plan))
    await new Promise<void>((resolve, reject) => {
      server.once('error', (error) => void failureOf(path, error).then(reject))
      // A umask by which the socket is its owner's alone from its first moment on.
      const mask = process.umask(0o177)
      try {
        server.listen(path, resolve)
      } finally {
        process.umask(mask)
      }
    })
    server.on('error', (error) =>
      this.#shared.log.error('connection not accepted', { socket: path, error: messageOf(error) }),
    )
    this.add(server)
    if (uid !== undefined && uid !== process.getuid?.())
      await chown(path, uid, -1).catch(failed('chown', path))
  }

  /** A server that gives its connections to {@link serve}, and is closed with the others. */
  add(server: Server): void {
    this.#servers.push(server)
  }

  /** Accepts no more, and resolves once the calls have ended or their time is over. */
  async close(): Promise<void> {
    const closed = this.#servers.map((server) => new Promise((resolve) => server.close(resolve)))
    for (const [socket, connection] of this.#open) {
      // A client that has not spoken yet does not hear that it should go.
      if (socket.bytesRead === 0) socket.destroy()
      else connection.drain()
    }
    const stopTimer = startTimer(CLOSE_MS, () => {
      for (const socket of this.#open.keys()) socket.destroy()
    })
    await Promise.all(closed)
    stopTimer()
  }

  /** Serves an accepted connection. */
  serve(socket: Socket, { checkCall = async () => undefined, peer, tables, totals }: ServedPlan): void {
    const { log, readDescriptors } = this.#shared
    // 'close' follows.
    socket.on('error', () => {})
    const own = totals.addConnection((reason) => {
      log.debug('connection closed', { peer, reason })
      socket.destroy()
    })
    if (own === undefined) {
      log.debug('connection refused', { peer, reason: 'too many connections' })
      socket.destroy()
      return
    }
    const served = serveGrpc(socket, {
      ...tables,
      peer,
      firstBytes: Buffer.alloc(0),
      readDescriptors,
      answerBytes: ANSWER_BYTES,
      checkCall,
      totals: own,
      startTimer,
    })
    this.#open.set(socket, served)
    socket.once('close', () => {
      own.end()
      this.#open.delete(socket)
    })
  }
}

/** Throws FAILED_PRECONDITION when the sockets of instances do not fit below the state folder. */
export function checkFolderLength(path: string, remedy: string, most = MAX_STATE_FOLDER_BYTES): void {
  const bytes = Buffer.byteLength(path)
  if (bytes <= most) return
  throw new AgentError(
    'FAILED_PRECONDITION',
    `state folder ${path}: ${bytes} bytes, want at most ${most} for the sockets in it (${remedy})`,
  )
}

/** Makes the folder of sockets. With `isOpen` other users may pass through it, but not list it. */
export async function makeSocketFolder(path: string, isOpen: boolean): Promise<void> {
  await makeOwnFolder(path)
  await chmod(path, isOpen ? 0o711 : 0o700).catch(failed('chmod', path))
}

/** Leaves the mode of a folder that is there. */
export async function makeOwnFolder(path: string): Promise<void> {
  await makeFolder(path).catch(failed('mkdir', path))
  const status = await lstat(path).catch(failed('stat', path))
  if (status.isSymbolicLink()) throw refused(path, 'a link, want the folder itself')
  const { uid, mode } = status
  if (uid !== process.getuid?.() || (mode & 0o022) !== 0)
    throw refused(path, 'other users can change it, want a folder that only this user can write')
}

/** Makes its parents, too. Node's own way never gives up on those below /proc. */
export async function makeFolder(path: string): Promise<void> {
  try {
    await mkdir(path, { mode: 0o700 })
  } catch (error) {
    if (errnoOf(error) === 'EEXIST') return
    if (errnoOf(error) !== 'ENOENT' || dirname(path) === path) throw error
    await makeFolder(dirname(path))
    await mkdir(path, { mode: 0o700 })
  }
}

async function failureOf(path: string, error: unknown): Promise<AgentError> {
  if (errnoOf(error) === 'EADDRINUSE') {
    const isSocket = await lstat(path).then(
      (status) => status.isSocket(),
      () => true,
    )
    return isSocket
      ? refused(path, 'another process serves it, want that stopped first or another --state')
      : refused(path, 'not a socket, want another --socket')
  }
  // Node has EACCES for it.
  const hasFolder = await lstat(dirname(path)).then(
    () => true,
    () => false,
  )
  return hasFolder ? fromNodeError('listen', path, error) : refused(path, 'its folder does not exist')
}

function refused(path: string, text: string): AgentError {
  return new AgentError('FAILED_PRECONDITION', `${path}: ${text}`)
}
