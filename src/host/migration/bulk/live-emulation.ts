import type { BulkQemu } from './bulk.ts'

/**
 * When the guest has to stand still so that QEMU sends each page again that the guest writes to after it was sent. QEMU looks for such
 * pages by turns with sending. Its emulation, up to version 8, misses writes to a page that the guest uses during a look: the target
 * would have old content.
 */
export type StopForMemory = 'none' | 'for the first look' | 'for all'

/**
 * What is known of emulation, by the beginnings of versions. In 7.2 only a look that is taken while the guest runs misses a write. With
 * a downtime limit of 0 there are two looks: one as the migration begins, and one after QEMU has stopped the guest. Other versions have
 * not been tried. From 9.0 on no look misses a write (physmem, "Fix migration dirty bitmap coherency").
 */
const EMULATION: Readonly<Record<string, StopForMemory>> = { '7.2': 'for the first look' }
const SOUND_MAJOR = 9

export async function stopOf({ qmp, signal }: Pick<BulkQemu, 'qmp' | 'signal'>): Promise<StopForMemory> {
  const { enabled } = await qmp.execute('query-kvm', {}, signal)
  if (enabled) return 'none'
  const { major, minor } = (await qmp.execute('query-version', {}, signal)).qemu
  return major >= SOUND_MAJOR ? 'none' : (EMULATION[`${major}.${minor}`] ?? 'for all')
}

/** A guest whose memory was sent by then has been stopped by QEMU, which lets it run no more. */
export async function letRun({ qmp, signal }: Pick<BulkQemu, 'qmp' | 'signal'>): Promise<void> {
  await qmp.execute('cont', {}, signal).catch(async (error) => {
    const { status } = await qmp.execute('query-status', {}, signal)
    if (status !== 'finish-migrate') throw error
  })
}
