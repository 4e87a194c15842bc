import { mkdirSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { silentLogger } from '../../../src/base/log.ts'
import type { Instances } from '../../../src/host/instance/instances.ts'
import { openHostInstances } from '../../../src/host/instance/open-host-instances.ts'
import type { Registry } from '../../../src/host/instance/registry/registry.ts'
import type { LifePlan } from './life.ts'
import { ensureRequest, file, specification } from './requests.ts'
import { tinyGuest } from './tiny-guest.ts'

/** Opens the instances of a state folder with real holders and emulated machines. */
export function openReal(stateFolder: string, registry: Registry): Promise<Instances> {
  return openHostInstances({ stateFolder, registry, log: silentLogger(), acceleration: 'tcg' })
}

/** The life of an instance with files in `disks`, which are made. */
export function lifePlan(disks: string, does: Parameters<typeof tinyGuest>[1] = 'idle'): LifePlan {
  mkdirSync(disks, { recursive: true })
  const { backends } = specification()
  const board = { kernel: tinyGuest(disks, does) }
  return {
    request: ensureRequest('web', {
      specification: { board, backends: { ...backends, 'root-file': file(image(disks, 'root', 16)) } },
    }),
    other: image(disks, 'other', 16),
    data: image(disks, 'data', 8),
  }
}

/** Makes an image of so many MiB, and returns its path. */
export function image(folder: string, name: string, sizeMib: number): string {
  const path = join(folder, name)
  writeFileSync(path, '')
  truncateSync(path, sizeMib * 2 ** 20)
  return path
}
