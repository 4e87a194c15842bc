import { constants, watch } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { checkErrno, fromNodeError } from '../errors.ts'
import type { Native } from '../native.ts'
import { AT_FDCWD } from '../open-flags.ts'
import type { Streams } from '../streams/streams.ts'

/** What the kernel tells about a cgroup by itself. Whoever listens closes; nothing is called after that. */
export interface CgroupEvents {
  /** cgroup v2: calls back after each change of a file that the kernel changes. Throws when it cannot listen. */
  onModified(path: string, happened: () => void): { close(): void }
  /**
   * cgroup v1: calls back after each event about a file of the cgroup at `folder` (cgroup.event_control), and when the
   * cgroup is removed. Rejects when it cannot listen.
   */
  onNotified(folder: string, file: string, happened: () => void): Promise<{ close(): void }>
}

/** What an eventfd is read by: its counter. */
const COUNTER_BYTES = 8

/** What the kernel tells about cgroups: by inotify on v2, by an eventfd on v1. */
export function linuxCgroupEvents(native: Native, streams: Streams): CgroupEvents {
  return {
    onModified(path, happened) {
      try {
        const watcher = watch(path, { persistent: false }, happened)
        watcher.on('error', happened)
        return { close: () => watcher.close() }
      } catch (error) {
        throw fromNodeError('watch', path, error)
      }
    },

    async onNotified(folder, file, happened) {
      const event = checkErrno('open', 'an eventfd', native.eventFd())
      try {
        await register(native, event, folder, file)
      } catch (error) {
        streams.close(event)
        throw error
      }
      const closing = new AbortController()
      followEvents(streams, event, closing.signal, happened)
        // It ends by nothing but the closing.
        .catch(() => {})
        .finally(() => streams.close(event))
      return { close: () => closing.abort() }
    },
  }
}

/** The kernel needs the file only to learn what shall be told (cgroup-v1/cgroups.rst, section 2.4). */
async function register(native: Native, event: number, folder: string, file: string): Promise<void> {
  const path = `${folder}/${file}`
  const how = { flags: constants.O_RDONLY, mode: 0, resolve: 0 }
  const opened = checkErrno('open', path, native.openAt2(AT_FDCWD, path, how))
  try {
    const control = `${folder}/cgroup.event_control`
    await writeFile(control, `${event} ${opened}`).catch((error) => {
      throw fromNodeError('write', control, error)
    })
  } finally {
    native.close(opened)
  }
}

async function followEvents(
  streams: Streams,
  event: number,
  closed: AbortSignal,
  happened: () => void,
): Promise<never> {
  for (;;) {
    await streams.readable(event, closed)
    streams.tryRead(event, COUNTER_BYTES)
    happened()
  }
}
