import { expect } from 'vitest'
import type { Files } from '../../../../src/os/files/files.ts'
import type { RemoteProcess } from '../../containers/pod.ts'
import { publish } from '../../handlers/storage/kubernetes-volume.ts'

/** The command of a container that reads the volume at /volume with volume-reader.c until its third version. */
export const READ_VERSIONS = 'exec volume-reader /volume three'

export function publishFirst(files: Files, volume: string): Promise<void> {
  return publish(files, volume, '..v1', { a: 'one', b: 'one' })
}

/**
 * Publishes each further version after the reader has seen the previous one. The reader must get an inotify event for each
 * and must never see a partial one.
 */
export async function expectWholeVersions(
  reader: RemoteProcess,
  files: Files,
  volume: string,
): Promise<void> {
  await reader.readUntil('version one\n')
  for (const [name, content] of [
    ['..v2', 'two'],
    ['..v3', 'three'],
  ] as const) {
    await publish(files, volume, name, { a: content, b: content })
    expect(await reader.readUntil('event\n')).not.toContain('broken')
  }
  expect((await reader.readAll()).toString()).not.toContain('broken')
  expect(await reader.wait()).toBe(0)
}
