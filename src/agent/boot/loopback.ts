import type { BootContext, StepOutcome } from './step.ts'

/** Sets `lo` up; the kernel then gives it its addresses by itself. */
export async function setLoopbackUp({ os }: BootContext): Promise<StepOutcome> {
  const loopback = os.network.links().find((link) => link.loopback)
  if (loopback === undefined || loopback.up) return 'already'
  os.network.setLink(loopback.index, { up: true })
  return 'done'
}
