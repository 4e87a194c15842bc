import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { buildVminit } from '../../../src/build/native.ts'
import { processes, processState } from '../../support/processes.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { buildSanitizedVminit, SMALL_RING } from '../../support/vminit/compiled.ts'
import { makeOrphans } from '../../support/vminit/orphans.ts'
import { type ChannelRecord, exitCode, Kind, parseRecord } from '../../support/vminit/record.ts'
import { run, supervise } from '../../support/vminit/supervised.ts'

let vminit: string
let folder: string

beforeAll(async () => {
  vminit = await buildVminit()
})
beforeEach(() => {
  folder = temporaryFolder()
})

describe('the layout of a record', () => {
  it('is what was once recorded on an x86-64 guest', () => {
    const bytes = Buffer.from(
      '01000000010000006100000000090000' +
        '1d40cb72000000000000000000000000' +
        '92060000000000008804000000000000' +
        '01000000000000000000000000000000',
      'hex',
    )
    expect(parseRecord(bytes)).toEqual({
      version: 1,
      kind: Kind.EXIT,
      pid: 97,
      status: 9 << 8,
      boottimeNs: 0x72cb401dn,
      utimeUs: 0n,
      stimeUs: 0x692n,
      maxrssKib: 0x488n,
      sequence: 1n,
    })
  })
})

describe('vminit reaping', () => {
  it('reports an orphan of a double fork with its status, end time and resource usage', async () => {
    const supervised = await supervise(vminit)
    // Exits once the kernel has counted 3 ticks of 10 ms in user mode (field 14 of its stat).
    const stat = 'read -r _ _ _ _ _ _ _ _ _ _ _ _ _ ticks _ < /proc/$$/stat'
    const busy = `ticks=0; while [ $ticks -lt 3 ]; do ${stat}; done; exit 7`
    const before = uptimeNs()
    await supervised.shell(`(sh -c 'echo $$ >${folder}/pid; ${busy}' &)`)
    await supervised.until(({ records }) => records.length > 0)
    const after = uptimeNs()
    const [record] = supervised.records
    expect(record).toMatchObject({ version: 1, kind: Kind.EXIT, status: 7 << 8, sequence: 1n })
    expect(record?.utimeUs).toBeGreaterThanOrEqual(30_000n)
    expect(record?.maxrssKib).toBeGreaterThan(100n)
    expect(record?.pid).toBe(Number(readFileSync(join(folder, 'pid'), 'utf8')))
    expect(record?.boottimeNs).toBeGreaterThanOrEqual(before)
    // /proc/uptime leaves out what is below 10 ms.
    expect(record?.boottimeNs).toBeLessThan(after + 10_000_000n)
  })

  it('reports a death by signal', async () => {
    const supervised = await supervise(vminit)
    await supervised.shell("(sh -c 'kill -TERM $$' &)")
    await supervised.until(({ records }) => records.length > 0)
    expect(supervised.records[0]?.status).toBe(15)
  })

  it('loses none of 1,000 orphans that exit at once while the agent is stopped', async () => {
    const supervised = await supervise(vminit)
    const orphans = await makeOrphans(supervised, folder, 1000)
    await stop(supervised.agentPid)
    await orphans.releaseAndAwaitReaping()
    expect(supervised.records).toEqual([])
    process.kill(supervised.agentPid, 'SIGCONT')
    await supervised.until(({ records }) => records.length >= 1000)
    expect(statusesOf(supervised.records)).toEqual(orphans.statuses)
    expect(supervised.records.map(({ sequence }) => Number(sequence))).toEqual(countFromOne(1000))
    const children = processes().filter(({ parent }) => parent === supervised.vminitPid)
    expect(children.map(({ pid }) => pid)).toEqual([supervised.agentPid])
  })

  it('sends the records that a killed agent has not read to the next agent, once', async () => {
    const supervised = await supervise(vminit)
    const orphans = await makeOrphans(supervised, folder, 1000)
    const killed = supervised.agentPid
    await stop(killed)
    await orphans.releaseAndAwaitReaping()
    process.kill(killed, 'SIGKILL')
    await supervised.started(1)
    await supervised.until(({ records }) => records.length >= 1000)
    expect(statusesOf(supervised.records)).toEqual(orphans.statuses)
    expect(supervised.records.map(({ sequence }) => Number(sequence))).toEqual(countFromOne(1000))
    expect(supervised.events.at(0)).toMatchObject({ arguments: ['--channel', '3', '--restarts', '0'] })
    expect(supervised.agentPid).not.toBe(killed)
  })

  it('sends a record again that a dead agent had read in part', async () => {
    // 100 bytes are the first record and a part of the second; three orphans exit.
    const first =
      '(sh -c "exit 1" & sh -c "exit 2" & sh -c "exit 3" &); head -c 100 <&3 >/dev/null; kill -9 $$'
    const second = 'head -c 128 <&3 | od -An -v -tx1 -w128'
    const script = `if [ $3 = 0 ]; then ${first}; else ${second}; fi`
    const { status, stdout } = await run([vminit, '--', 'sh', '-c', script])
    const bytes = Buffer.from(stdout.replaceAll(/\s/g, ''), 'hex')
    expect(status).toBe(0)
    expect(parseRecord(bytes).sequence).toBe(2n)
    expect(parseRecord(bytes.subarray(64)).sequence).toBe(3n)
  })

  it('counts the exits that its ring has no room for, and reports them where they are missing', async () => {
    const count = SMALL_RING + 500
    const supervised = await supervise(await buildSanitizedVminit())
    const orphans = await makeOrphans(supervised, folder, count)
    await stop(supervised.agentPid)
    await orphans.releaseAndAwaitReaping()
    process.kill(supervised.agentPid, 'SIGCONT')
    await supervised.until(({ records }) => records.some(({ kind }) => kind === Kind.OVERFLOW))
    const kept = supervised.records.filter(({ kind }) => kind === Kind.EXIT)
    expect(kept).toHaveLength(SMALL_RING)
    expect(supervised.records.at(-1)).toMatchObject({
      kind: Kind.OVERFLOW,
      sequence: BigInt(count - SMALL_RING),
    })
    await supervised.shell('(true &)')
    await supervised.until(({ records }) => records.length > SMALL_RING + 1)
    expect(supervised.records.at(-1)).toMatchObject({ kind: Kind.EXIT, sequence: BigInt(count + 1) })
  })
})

function uptimeNs(): bigint {
  const [seconds = ''] = readFileSync('/proc/uptime', 'utf8').split(' ')
  return BigInt(Math.round(Number(seconds) * 100)) * 10_000_000n
}

async function stop(pid: number): Promise<void> {
  process.kill(pid, 'SIGSTOP')
  await expect.poll(() => processState(pid)?.state).toBe('T')
}

function statusesOf(records: readonly ChannelRecord[]): Map<number, number | undefined> {
  return new Map(records.map(({ pid, status }) => [pid, exitCode(status)]))
}

function countFromOne(count: number): readonly number[] {
  return Array.from({ length: count }, (_, index) => index + 1)
}
