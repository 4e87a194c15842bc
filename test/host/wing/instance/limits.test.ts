import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { afterEach, describe, expect, it } from 'vitest'
import type { Specification } from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { ChangeStateRequest_Change as Change } from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { readExits } from '../../../../src/host/instance/holder/holder-files.ts'
import type { Instances } from '../../../../src/host/instance/instances.ts'
import { memoryRegistry } from '../../../../src/host/instance/registry/memory-registry.ts'
import { instanceFolderName, specKey } from '../../../../src/host/spec/spec-key.ts'
import { LimitedCgroups } from '../../../../src/os/cgroup/limited-cgroups.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { cgroupsOf, leftovers } from '../../../support/wing/leftovers.ts'
import { lifePlan, openReal } from '../../../support/wing/real-wing.ts'
import { ADMIN } from '../../../support/wing/requests.ts'

const read = (...names: readonly string[]) => readFileSync(join(...names), 'utf8').trim()

/** The cgroup of a process in each of the hierarchies that have limits. */
function cgroupsOfProcess(pid: number): readonly string[] {
  const lines = read(`/proc/${pid}/cgroup`).split('\n')
  return lines.flatMap((line) => {
    const [, controllers = '', path = ''] = line.split(':')
    return ['memory', 'cpu', 'pids'].includes(controllers) ? [path] : []
  })
}

describe.skipIf(existsSync('/sys/fs/cgroup/cgroup.controllers'))('the limits of an instance', () => {
  const folder = temporaryFolder()
  const registry = memoryRegistry()
  const { request } = lifePlan(join(folder, 'disks'))
  const ensure = (limits?: Specification['limits']) => ({
    ...request,
    specification: request.specification && { ...request.specification, limits },
  })
  const opened: Instances[] = []
  const open = async () => {
    const instances = await openReal(folder, registry)
    opened.push(instances)
    return instances
  }
  afterEach(async () => {
    const instances = opened.splice(0).at(-1)
    for (const { properties } of instances?.list(ADMIN) ?? [])
      await instances?.remove(properties?.key ?? '', ADMIN)
    await instances?.close()
    expect(leftovers(folder)).toEqual([])
  })
  const own = () => join(folder, 'instances', instanceFolderName(specKey('web')))

  it('hold for all its processes, and go with the machine, whoever ends it', async () => {
    const before = await open()
    const limits = { memoryMib: 700n, cpuMilli: 500, tasks: 60 }
    const made = await before.ensure(ensure(limits), ADMIN)
    const pids = [made.holderPid, ...(await readExits(own())).map(({ pid }) => pid)]
    expect(pids).toHaveLength(2)
    const [memory = '', cpu = '', tasks = ''] = cgroupsOf(folder)
    for (const pid of pids) {
      const paths = cgroupsOfProcess(pid)
      expect(paths).toHaveLength(3)
      for (const path of paths) expect(memory.endsWith(path)).toBe(true)
    }
    expect(read(memory, 'memory.limit_in_bytes')).toBe(`${700 * 2 ** 20}`)
    const withSwap = 'memory.memsw.limit_in_bytes'
    if (existsSync(join(memory, withSwap))) expect(read(memory, withSwap)).toBe(`${700 * 2 ** 20}`)
    expect(read(cpu, 'cpu.cfs_quota_us')).toBe('50000')
    expect(read(tasks, 'pids.max')).toBe('60')
    await before.close()
    const instances = await open()
    await instances.changeState({ key: 'web', change: Change.KILL, graceMs: 0 }, ADMIN)
    expect(cgroupsOf(folder)).toEqual([])
    await instances.changeState({ key: 'web', change: Change.RUN, graceMs: 0 }, ADMIN)
    expect(cgroupsOf(folder)).toHaveLength(3)
  })

  it('are found by many at the same time', async () => {
    const find = async (waitMs: number) => {
      await delay(waitMs)
      return await LimitedCgroups.find(`limits-${process.pid}`)
    }
    for (let round = 0; round < 60; round++) {
      const found = [1, 2, 3, 4].map((number) => find((number * round) % 7))
      expect(await Promise.all(found)).not.toContain(undefined)
    }
  })

  it('have defaults by the memory and the CPUs of the guest', async () => {
    const instances = await open()
    await instances.ensure(ensure(), ADMIN)
    const [memory = '', tasks = ''] = cgroupsOf(folder)
    expect(read(memory, 'memory.limit_in_bytes')).toBe(`${(64 + 512 + 1024) * 2 ** 20}`)
    expect(read(tasks, 'pids.max')).toBe('513')
  })
})
