import { constants, readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Logger } from '../../base/log.ts'
import { buildHolder } from '../../build/native.ts'
import { chooseAcceleration, hasAccess, hostTscKhz } from '../qemu/host.ts'
import { findVsockDaemon } from '../qemu/vsock/open-link.ts'
import type { Plan } from './instance.ts'
import type { Instances } from './instances.ts'
import { INSTANCE_LIMITS } from './limits.ts'
import { hostLinks } from './machine/host-links.ts'
import { planFor } from './machine/plan.ts'
import { openInstances } from './open-instances.ts'
import type { Registry } from './registry/registry.ts'
import { findHolder, startHolder } from './start-holder.ts'

export interface HostInstancesOptions {
  readonly stateFolder: string
  readonly registry: Registry
  readonly log: Logger
  /** MICROVM_ACCEL. */
  readonly acceleration: string | undefined
}

/** Opens the instances of a state folder with the programs of this host, and takes in again those that run. */
export async function openHostInstances(options: HostInstancesOptions): Promise<Instances> {
  const program = await buildHolder()
  return await openInstances({
    ...options,
    plan: hostPlan(options),
    holders: { start: (folder) => startHolder(folder, program), find: findHolder },
    links: hostLinks(),
    clock: { sleep: (ms, signal) => sleep(ms, undefined, { signal }) },
    limits: INSTANCE_LIMITS,
  })
}

/** What a start makes with the programs of this host. */
export function hostPlan({ log, acceleration }: Pick<HostInstancesOptions, 'log' | 'acceleration'>): Plan {
  const facts = {
    cpuinfo: readFileSync('/proc/cpuinfo', 'utf8'),
    kvmUsable: hasAccess('/dev/kvm', constants.R_OK | constants.W_OK),
    override: acceleration,
  }
  return planFor({
    acceleration: chooseAcceleration(facts),
    tscKhz: hostTscKhz(),
    program: async (name) =>
      name === 'vsock-daemon' ? await findVsockDaemon((line) => log.info(line)) : PROGRAMS[name],
  })
}

/** Where Debian has them; those without a folder are found on PATH. */
const PROGRAMS = {
  qemu: 'qemu-system-x86_64',
  virtiofsd: '/usr/lib/qemu/virtiofsd',
  passt: 'passt',
} as const
