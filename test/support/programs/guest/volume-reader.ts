import { expect } from 'vitest'
import type { Files } from '../../../../src/os/files/files.ts'
import type { RemoteProcess } from '../../containers/pod.ts'
import { publish } from '../../handlers/storage/kubernetes-volume.ts'

/** The command of a container that reads the volume at /volume until its third version. The program is volume-reader.c. */
export const READ_VERSIONS = 'exec volume-reader /volume three'

/** Publishes the first version, which a reader finds when it starts. */
export function publishFirst(files: Files, volume: string): Promise<void> {
  return publish(files, volume, '..v1', { a: 'one', b: 'one' })
}

/**
 * Publishes two more versions, each after the reader has seen the previous one, and reads the output of READ_VERSIONS
 * to its end: inotify must report each version, and the reader must never see a partial one.
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
