import { execFileSync } from 'node:child_process'
import { join } from 'node:path'
import type { Instance, Specification } from '../../../src/gen/microvm/instance/v1/instance.ts'
import type { Instances } from '../../../src/host/instance/instances.ts'
import { memoryRegistry } from '../../../src/host/instance/registry/memory-registry.ts'
import { temporaryFolder } from '../temporary-folder.ts'
import { leftovers } from './leftovers.ts'
import { lifePlan, openReal } from './real-wing.ts'
import { ADMIN } from './requests.ts'

/** An instance `web` with a real machine, paused, in a state folder of its own. */
export interface MadeMachine {
  readonly folder: string
  readonly disks: string
  readonly instances: Instances
  get(): Promise<Instance>
  /** Removes the instance, and returns what it leaves. */
  remove(): Promise<readonly string[]>
}

export async function makeMachine(
  change: (specification: Specification, disks: string) => Specification = (same) => same,
): Promise<MadeMachine> {
  const folder = temporaryFolder()
  const disks = join(folder, 'disks')
  const { request } = lifePlan(disks)
  const { specification } = request
  if (specification === undefined) throw new Error('no specification')
  const instances = await openReal(folder, memoryRegistry())
  await instances.ensure({ ...request, specification: change(specification, disks) }, ADMIN)
  return {
    folder,
    disks,
    instances,
    get: () => instances.get('web', ADMIN),
    remove: async () => {
      await instances.remove('web', ADMIN)
      await instances.close()
      return leftovers(folder)
    },
  }
}

/** Runs ip(8) in the network namespace of this process. */
export function ip(...words: readonly string[]): string {
  return execFileSync('ip', words, { encoding: 'utf8' })
}
