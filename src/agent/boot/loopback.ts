import type { BootContext, StepOutcome } from './step.ts'

const IFF_UP = 1

/** Sets `lo` up; the kernel then gives it its addresses by itself. */
export async function setLoopbackUp({ os }: BootContext): Promise<StepOutcome> {
  const flags = Number(await os.files.readText('/sys/class/net/lo/flags'))
  if ((flags & IFF_UP) !== 0) return 'already'
  os.network.setInterfaceUp('lo')
  return 'done'
}
