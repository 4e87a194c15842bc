import type { Holder } from '../holder/holder.ts'
import type { MachineInstance } from '../instance.ts'
import type { Machine } from '../machine/machine.ts'

/** The words of the kernel's panic() (kernel/panic.c). */
const PANIC = 'Kernel panic - not syncing'
const CONSOLE = 0

/**
 * Ends the machine when its console says that the kernel has panicked. Only for machine `microvm`: the others have a device
 * by which the guest tells it.
 */
export function watchForPanic(instance: MachineInstance, machine: Machine): void {
  if (instance.record.specification?.board?.machine !== 'microvm') return
  const { log } = instance.context
  panics(machine.holder).then(
    (hasPanicked) => hasPanicked && instance.end({ kind: 'state', reason: 'the guest panicked' }),
    // The end of the holder is told elsewhere.
    (error) => log.debug('console not watched', { error: String(error) }),
  )
}

/** Reads the console until the text appears, or the holder ends. */
async function panics(holder: Holder): Promise<boolean> {
  const rings = await holder.rings()
  let position = rings.find(({ number }) => number === CONSOLE)?.end ?? 0n
  for (let tail = ''; ; ) {
    const { first, stream } = await holder.attach(CONSOLE, position)
    position = first
    let hasEnded = true
    for await (const chunk of stream) {
      hasEnded = false
      position += BigInt(chunk.length)
      tail += chunk.toString('latin1')
      if (tail.includes(PANIC)) return true
      tail = tail.slice(-PANIC.length)
    }
    // A reader that falls behind is cut off, and goes on with what is kept.
    if (hasEnded) return false
  }
}
