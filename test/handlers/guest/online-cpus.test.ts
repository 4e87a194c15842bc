import { setImmediate as turn } from 'node:timers/promises'
import { beforeEach, describe, expect, it } from 'vitest'
import { cancelled, neverAborted } from '../../../src/base/abort.ts'
import { onlineCpus } from '../../../src/handlers/guest/online-cpus.ts'
import { statusOf } from '../../../src/rpc/status.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'
import { FakeSysfs } from '../../support/handlers/guest/fake-sysfs.ts'

const CPUS = '/sys/devices/system/cpu'

describe('onlineCpus', () => {
  let os: FakeOs
  let sysfs: FakeSysfs

  beforeEach(async () => {
    os = new FakeOs()
    sysfs = await FakeSysfs.of(os, 16)
  })

  it('does nothing when enough CPUs are online, including the boot CPU', async () => {
    await sysfs.plugCpu(1)
    await online(1)
    expect(sysfs.written).toEqual([])
    await nothingLeft()
  })

  it('brings the missing number of CPUs online, the lowest first', async () => {
    for (const cpu of [10, 2, 1]) await sysfs.plugCpu(cpu)
    await online(3)
    expect(sysfs.written).toEqual([`${CPUS}/cpu1/online`, `${CPUS}/cpu2/online`])
  })

  it('waits for a CPU that is still being plugged in', async () => {
    const done = online(2)
    await waiting()
    await sysfs.plugCpu(1)
    sysfs.announce('add', '/devices/system/cpu/cpu1', 'cpu')
    await done
    await nothingLeft()
  })

  it('tries again soon when the kernel refuses a CPU, because no event reports a later success', async () => {
    await sysfs.plugCpu(1)
    sysfs.refusals.set(`${CPUS}/cpu1/online`, 'EBUSY')
    const done = online(2)
    await waiting()
    sysfs.refusals.clear()
    os.clock.advance(50)
    await done
  })

  it('brings another CPU online when one stays offline', async () => {
    for (const cpu of [1, 2]) await sysfs.plugCpu(cpu)
    sysfs.refusals.set(`${CPUS}/cpu1/online`, 'EIO')
    await online(2)
    expect(await os.files.readText(`${CPUS}/online`)).toBe('0,2\n')
  })

  it('reports after its time limit how many CPUs are missing, and why', async () => {
    for (const cpu of [1, 2]) await sysfs.plugCpu(cpu)
    sysfs.refusals.set(`${CPUS}/cpu1/online`, 'EIO')
    const failure = online(4).catch(statusOf)
    await waiting()
    os.clock.advance(5000)
    expect(await failure).toEqual({
      code: 'INTERNAL',
      message:
        'failed to online 2 CPU(s): Timeout after 5s waiting for uevent of CPUs until 4 are online: ' +
        `no other CPUs than 0,2 (write ${CPUS}/cpu1/online: EIO); during the wait no uevents`,
    })
    await nothingLeft()
  })

  it('refuses at once more CPUs than the guest can ever have', async () => {
    await expect(online(17)).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: 'nb_cpus: 17, want at most 16 (the possible CPUs of this guest)',
    })
  })

  it('stops when its call is cancelled', async () => {
    const call = new AbortController()
    const done = online(2, call.signal)
    await waiting()
    call.abort(cancelled())
    await expect(done).rejects.toMatchObject({ code: 'CANCELLED' })
    await nothingLeft()
  })

  function online(wanted: number, signal = neverAborted) {
    return onlineCpus(os, wanted, signal)
  }

  async function nothingLeft() {
    await turn()
    expect([os.uevents.listeners.size, os.clock.sleeping]).toEqual([0, 0])
  }

  /** Runs the first check. Two timers remain: the time limit, and the pause before the next check. */
  async function waiting() {
    await turn()
    expect(os.clock.sleeping).toBe(2)
  }
})
