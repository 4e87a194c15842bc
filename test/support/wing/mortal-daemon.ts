// A daemon's instances that live a life from a call on, and die at a commit: FOLDER FIRST COMMIT WHEN.
import { join } from 'node:path'
import { openRegistry } from '../../../src/host/instance/registry/open-registry.ts'
import { LIFE } from './life.ts'
import { mortalRegistry } from './mortal-registry.ts'
import { lifePlan, openReal } from './real-wing.ts'

const [, , folder = '', first = '', commit = '', when = 'before'] = process.argv
const die = () => process.kill(process.pid, 'SIGKILL')
const real = await openRegistry(folder)
const death = { commit: Number(commit), when: when === 'after' ? 'after' : 'before' } as const
const registry = death.commit === 0 ? real : mortalRegistry(real, death, die)
const instances = await openReal(folder, registry)
const plan = lifePlan(join(folder, 'disks'))
const names = Object.keys(LIFE)
for (const [name, call] of Object.entries(LIFE).slice(names.indexOf(first))) {
  process.stdout.write(`${name}\n`)
  await call(instances, plan)
}
await instances.close()
await registry.close()
process.stdout.write('end\n')
