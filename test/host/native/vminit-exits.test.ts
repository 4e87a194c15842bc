import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { buildVminit } from '../../../src/build/native.ts'
import { processes, processState } from '../../support/processes.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { buildExitFlooder, buildSanitizedVminit } from '../../support/vminit/compiled.ts'
import {
  type ChannelRecord,
  commandRecord,
  exitCode,
  Kind,
  parseRecord,
} from '../../support/vminit/record.ts'
import { run, supervise } from '../../support/vminit/supervised.ts'
import { makeOrphans } from './orphans.ts'

let vminit: string
let folder: string

beforeAll(async () => {
  vminit = await buildVminit()
})
beforeEach(() => {
  folder = temporaryFolder()
})

describe('the layout of a record', () => {
  it('is what was once recorded on an x86-64 guest, with today’s version', () => {
    const bytes = Buffer.from(
      '02000000010000006100000000090000' +
        '1d40cb72000000000000000000000000' +
        '92060000000000008804000000000000' +
        '01000000000000000000000000000000',
      'hex',
    )
    expect(parseRecord(bytes)).toEqual({
      version: 2,
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
    await supervised.until(({ exits }) => exits.length > 0)
    const after = uptimeNs()
    const [record] = supervised.exits
    expect(record).toMatchObject({ version: 2, kind: Kind.EXIT, status: 7 << 8, sequence: 1n })
    expect(record?.utimeUs).toBeGreaterThanOrEqual(30_000n)
    expect(record?.maxrssKib).toBeGreaterThan(100n)
    expect(record?.pid).toBe(Number(readFileSync(join(folder, 'pid'), 'utf8')))
    expect(record?.boottimeNs).toBeGreaterThanOrEqual(before)
    // /proc/uptime has a precision of 10 ms.
    expect(record?.boottimeNs).toBeLessThan(after + 10_000_000n)
  })

  it('reports a death by signal', async () => {
    const supervised = await supervise(vminit)
    await supervised.shell("(sh -c 'kill -TERM $$' &)")
    await supervised.until(({ exits }) => exits.length > 0)
    expect(supervised.exits[0]?.status).toBe(15)
  })

  it('loses none of 1,000 orphans that exit at once while the agent is stopped', async () => {
    const supervised = await supervise(vminit)
    const orphans = await makeOrphans(supervised, folder, 1000)
    await stop(supervised.agentPid)
    await orphans.releaseAndAwaitReaping()
    expect(supervised.exits).toEqual([])
    process.kill(supervised.agentPid, 'SIGCONT')
    await supervised.until(({ exits }) => exits.length >= 1000)
    expect(statusesOf(supervised.exits)).toEqual(orphans.statuses)
    expect(supervised.exits.map(({ sequence }) => Number(sequence))).toEqual(countFromOne(1000))
    const children = processes().filter(({ parent }) => parent === supervised.vminitPid)
    expect(children.map(({ pid }) => pid)).toContain(supervised.agentPid)
    expect(children).toHaveLength(2)
  })

  it('sends the records that a killed agent has not acknowledged to the next agent, once', async () => {
    const supervised = await supervise(vminit)
    const orphans = await makeOrphans(supervised, folder, 1000)
    const killed = supervised.agentPid
    await stop(killed)
    await orphans.releaseAndAwaitReaping()
    process.kill(killed, 'SIGKILL')
    await supervised.started(1)
    await supervised.until(({ exits }) => exits.length >= 1000)
    expect(statusesOf(supervised.exits)).toEqual(orphans.statuses)
    expect(supervised.exits.map(({ sequence }) => Number(sequence))).toEqual(countFromOne(1000))
    expect(supervised.events.at(0)).toMatchObject({
      arguments: ['--channel', '3', '--restarts', '0', '--stored-list', '4', '--broker', '5'],
    })
    expect(supervised.agentPid).not.toBe(killed)
  })

  it('sends no exit again that was acknowledged, then reports the end of the backlog', async () => {
    const supervised = await supervise(vminit)
    const killed = supervised.agentPid
    await supervised.shell('(sh -c "exit 1" & sh -c "exit 2" & sh -c "exit 3" &)')
    await supervised.until(({ exits }) => exits.length >= 3)
    const acknowledge = commandRecord(Kind.ACK_EXITS)
    acknowledge.writeBigUInt64LE(2n, 48)
    supervised.tell({ order: 'send', hex: acknowledge.toString('hex') })
    await supervised.until(({ events }) => events.some(({ event }) => event === 'sent'))
    const before = supervised.records.length
    process.kill(killed, 'SIGKILL')
    await supervised.until(
      ({ records }) => records.at(-1)?.kind === Kind.BACKLOG_END && records.length > before,
    )
    const backlog = supervised.records.slice(before)
    expect(backlog.map(({ kind, sequence }) => [kind, sequence])).toEqual([
      [Kind.EXIT, 3n],
      [Kind.BACKLOG_END, 0n],
    ])
  })

  it('sends a record again that a dead agent had read in part', async () => {
    // 100 bytes are the end of the empty backlog and a part of the first exit; three orphans exit.
    const first =
      '(sh -c "exit 1" & sh -c "exit 2" & sh -c "exit 3" &); head -c 100 <&3 >/dev/null; kill -9 $$'
    const second = 'head -c 256 <&3 | od -An -v -tx1 -w256'
    const script = `if [ $3 = 0 ]; then ${first}; else ${second}; fi`
    const { status, stdout } = await run([vminit, '--', 'sh', '-c', script])
    const bytes = Buffer.from(stdout.replaceAll(/\s/g, ''), 'hex')
    expect(status).toBe(0)
    const records = [0, 64, 128, 192].map((at) => parseRecord(bytes.subarray(at)))
    const exits = records.filter(({ kind }) => kind === Kind.EXIT)
    expect(exits.map(({ sequence }) => sequence)).toEqual([1n, 2n, 3n])
    expect(records.map(({ kind }) => kind)).toContain(Kind.BACKLOG_END)
  })
})

/** Exceeds the ring many times. vminit's memory must not grow beyond the ring; idle, it takes less than 1 MB. */
const FLOOD = 20_000

describe.each([
  { name: 'vminit', build: buildVminit, maxKb: 1500, maxGrowthKb: 400 },
  {
    name: 'vminit under ASan and UBSan',
    build: buildSanitizedVminit,
    maxKb: Infinity,
    maxGrowthKb: Infinity,
  },
])('a flood of exits that the agent does not read, in $name', ({ build, maxKb, maxGrowthKb }) => {
  it('displaces no registered exit, loses none silently and takes no memory', async () => {
    const outcome = await run([await build(), '--', await buildExitFlooder(), String(FLOOD)])
    expect(outcome).toMatchObject({ status: 0 })
    expect(outcome.stderr).toBe('vminit: the agent exited with status 1: restart 1 in 0 ms\n')
    expect(outcome.stdout).toContain(`${FLOOD} exits or lost, some lost: 1, kept with status 42\n`)
    const [before = 0, after = 0] = [...outcome.stdout.matchAll(/rss (\d+)/g)].map(([, kb]) => Number(kb))
    expect(before).toBeLessThan(maxKb)
    expect(after - before).toBeLessThan(maxGrowthKb)
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
