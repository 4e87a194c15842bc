import { messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { Os } from '../../os/os.ts'
import { onlineBlock, onlineMemory } from './memory-blocks.ts'

/**
 * Brings memory blocks online: the present ones now, and each that the kernel announces later. It does so one by one, because
 * each occupies a thread. Calls `changed`, which must not throw, after each block that came online or went offline. Logs
 * errors, because OnlineCPUMem tries again. Throws when it cannot listen for uevents.
 */
export function watchMemory(
  os: Pick<Os, 'files' | 'uevents'>,
  log: Logger,
  changed: () => Promise<void>,
): void {
  let queue = Promise.resolve()
  const enqueue = (what: string, work: () => Promise<void>) => {
    queue = queue.then(async () => {
      try {
        await work()
        log.debug('memory online', { what })
      } catch (error) {
        log.warn('memory stays offline', { what, error: messageOf(error) })
      }
      await changed()
    })
  }
  const enqueueAll = () => enqueue('all', () => onlineMemory(os.files))

  os.uevents.listen({
    event({ action, subsystem, devicePath }) {
      if (subsystem !== 'memory') return
      if (action === 'add') enqueue(devicePath, () => onlineBlock(os.files, `/sys${devicePath}`))
      if (action === 'offline') queue = queue.then(changed)
    },
    error(error) {
      log.warn('memory uevents lost', { error: error.message })
      enqueueAll()
    },
  })
  enqueueAll()
}
