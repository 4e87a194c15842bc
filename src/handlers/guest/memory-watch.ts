import { messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { Os } from '../../os/os.ts'
import { onlineBlock, onlineMemory } from './memory-blocks.ts'

/**
 * Brings memory online by itself as it is added (spec F.3): what is there and off now, then each block that the kernel
 * announces, until the agent ends. Blocks are taken one after the other, for each takes a thread while the kernel works
 * on it. What fails is logged, and left to OnlineCPUMem. Throws when it cannot listen.
 */
export function watchMemory(os: Pick<Os, 'files' | 'uevents'>, log: Logger): void {
  let queue = Promise.resolve()
  const enqueue = (what: string, work: () => Promise<void>) => {
    queue = queue.then(async () => {
      try {
        await work()
        log.debug('memory online', { what })
      } catch (error) {
        log.warn('memory stays offline', { what, error: messageOf(error) })
      }
    })
  }
  const enqueueAll = () => enqueue('all', () => onlineMemory(os.files))

  os.uevents.listen({
    event({ action, subsystem, devicePath }) {
      if (action !== 'add' || subsystem !== 'memory') return
      enqueue(devicePath, () => onlineBlock(os.files, `/sys${devicePath}`))
    },
    error(error) {
      log.warn('uevents of memory were lost', { error: error.message })
      enqueueAll()
    },
  })
  enqueueAll()
}
