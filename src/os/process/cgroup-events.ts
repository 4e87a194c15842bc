import { constants, watch, writeFileSync } from 'node:fs'
import { LateAbort } from '../../base/abort.ts'
import { checkErrno, fromNodeError } from '../errors.ts'
import type { Native } from '../native.ts'
import { AT_FDCWD } from '../open-flags.ts'
import type { Streams } from '../streams/streams.ts'

/** The kernel's notifications about cgroups. The caller closes each listener; after that it is not called. */
export interface CgroupEvents {
  /** cgroup v2: calls `happened` after the kernel has modified the file at `path`. Throws when it cannot listen. */
  onModified(path: string, happened: () => void): { close(): void }
  /** cgroup v1: calls `happened` after each event of a file, and at the cgroup's end. Throws when it cannot listen. */
  onNotified(folder: string, file: string, happened: () => void): { close(): void }
}

const COUNTER_BYTES = 8

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

    onNotified(folder, file, happened) {
      const event = checkErrno('open', 'an eventfd', native.eventFd())
      try {
        register(native, event, folder, file)
      } catch (error) {
        streams.close(event)
        throw error
      }
      const closing = new LateAbort()
      followEvents(streams, event, closing.signal, happened)
        // Only `close` ends it.
        .catch(() => {})
        .finally(() => streams.close(event))
      return { close: () => closing.abort() }
    },
  }
}

/** Registers an eventfd. The kernel needs the open file only during the write (cgroup-v1/cgroups.rst, section 2.4). */
function register(native: Native, event: number, folder: string, file: string): void {
  const path = `${folder}/${file}`
  const how = { flags: constants.O_RDONLY, mode: 0, resolve: 0 }
  const opened = checkErrno('open', path, native.openAt2(AT_FDCWD, path, how))
  const control = `${folder}/cgroup.event_control`
  try {
    writeFileSync(control, `${event} ${opened}`)
  } catch (error) {
    throw fromNodeError('write', control, error)
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
