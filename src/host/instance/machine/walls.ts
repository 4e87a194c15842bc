import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { AgentError } from '../../../base/errors.ts'
import { noSuchProgram, placesOf } from '../../qemu/find-program.ts'
import type { MemoryOpener, Opener } from '../../qemu/parts-host.ts'
import type { SavedMemory } from '../../spec/spec.ts'
import type { ChildPlan } from '../holder/holder.ts'

/** Who the processes of an instance are. */
export interface ProcessUser {
  /** 0: the daemon's own. */
  readonly uid: number
  /** Supplementary groups. */
  readonly groups: readonly number[]
}

/**
 * The words by which a holder keeps a process from the host's network, from the sight of others' processes, and from the
 * rights of the daemon's user. An ordinary user may not mount another /proc everywhere.
 */
export function confinement({ uid, groups }: ProcessUser, hasNetwork = false): readonly string[] {
  return [
    ...(hasNetwork ? [] : ['network=none']),
    ...(hasNetwork || uid === 0 ? [] : ['processes=own']),
    ...(uid === 0 ? [] : [`uid=${uid}`, ...groups.map((group) => `group=${group}`)]),
  ]
}

/** The first descriptor after stdin, stdout and stderr. */
const FIRST = 3

/** Lets the holder open what QEMU needs at its start. */
export class StartOpener implements Opener, MemoryOpener {
  /** Words for the holder. */
  readonly walls: string[] = []
  /** Arguments of QEMU that tell it of the descriptors. */
  readonly args: string[] = []

  disk(path: string, isWritten: boolean): string {
    const fd = this.#add('disk', `${isWritten ? 'rw' : 'r'}:${path}`)
    this.args.push('-add-fd', `fd=${fd},set=${fd},opaque=${path.replaceAll(',', ',,')}`)
    return fileOfSet(fd)
  }

  read(path: string): string {
    return `/proc/self/fd/${this.#add('read', path)}`
  }

  map(path: string): string {
    return `/proc/self/fd/${this.#add('map', path)}`
  }

  memory({ path }: SavedMemory): string {
    return `/proc/self/fd/${this.#add('memory', path)}`
  }

  tap(name: string): string {
    return `${this.#add('tap', name)}`
  }

  queue(name: string, index: number): string {
    return `${this.#add(index === 0 ? 'first-queue' : 'queue', name)}`
  }

  connection(socket: string): string {
    return `${this.#add('connect', socket)}`
  }

  device(path: string): string {
    return `${this.#add('disk', `rw:${path}`)}`
  }

  /** The descriptor of a socket that listens at `path`. */
  listener(path: string): number {
    return this.#add('listen', path)
  }

  #add(kind: string, what: string): number {
    const fd = FIRST + this.walls.length
    this.walls.push(`${kind}=${fd}:${what}`)
    return fd
  }
}

/** A text of QEMU with the paths of what the holder has opened for it. */
export function withPaths(text: string, walls: readonly string[]): string {
  return text.replace(/\/(?:dev\/fdset|proc\/self\/fd)\/(\d+)/g, (name, fd) => {
    const found = walls
      .map((wall) => /^[\w-]+=(\d+):(?:rw?:(?=\/))?(.*)$/s.exec(wall))
      .find((each) => each?.[1] === fd)
    return found?.[2] ?? name
  })
}

/** By this name QEMU finds the descriptor of a set that allows what it wants to do (`-add-fd` of qemu(1)). */
export function fileOfSet(set: number): string {
  return `/dev/fdset/${set}`
}

/** `holder: start qemu: disk=4:rw:/disk: ENOENT` is of a file. */
const WALL = /^holder: start (\S+: )\w+=\d+:(?:rw?:)?/
const FULL = /: ENOSPC$/

/** The holder's error of a process that it could not start, with the file. */
export function explainStart(
  { code, message }: AgentError,
  folder: string,
  { name, argv: [program], walls = [], output }: ChildPlan,
): AgentError {
  const ofFile = message.replace(WALL, '$1')
  if (ofFile === message && (code === 'NOT_FOUND' || code === 'PERMISSION_DENIED')) {
    // A folder of PATH that is closed to the user makes execvp(3) fail with EACCES.
    const found = placesOf(program).find((path) => existsSync(path))
    if (found === undefined || code === 'NOT_FOUND') return noSuchProgram(program)
    const [uid] = walls.flatMap((wall) => /^uid=(\d+)$/.exec(wall)?.[1] ?? [])
    return new AgentError(
      'FAILED_PRECONDITION',
      `${found}: user ${uid ?? process.getuid?.()} may not execute it`,
    )
  }
  if (!FULL.test(message)) return new AgentError(code, ofFile)
  // There is no room for a socket of the process, or for what the holder keeps of its output.
  const own = output === 'console' ? `console.ring or ${name}.log` : `${name}.log`
  const file = WALL.test(message) ? message.replace(WALL, '').replace(FULL, '') : own
  return new AgentError('RESOURCE_EXHAUSTED', `${join(folder, file)}: ENOSPC`)
}
