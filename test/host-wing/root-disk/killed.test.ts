import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { describe, expect, it } from 'vitest'
import { pinnedNode } from '../../../src/build/project.ts'
import { prepareRootDisk, refuseUnfinishedDisk } from '../../../src/host/root-disk/prepare-root-disk.ts'
import {
  answerImage,
  type DiskPlace,
  IMAGE,
  type ImageServer,
  MIB,
  newPlace,
  SHA256,
  serve,
  sha256Of,
} from '../../support/host-wing/image-server.ts'

const LIMITS = { checkpointBytes: MIB }

interface WriteEvent {
  readonly when: 'begin' | 'end'
  readonly write: number
  readonly name: string
  /** Of the file, unless it is a rename. */
  readonly path?: string
  /** On the disk. */
  readonly position?: number
  /** What a rename makes the record. */
  readonly record?: string
}

/** What the record says of the disk. */
interface Recorded {
  readonly state: string
  readonly position: number
}

describe('a preparation', () => {
  it('records only what is durable, and that the disk is prepared last of all', async () => {
    const place = newPlace()
    const { events } = await prepareInChild(0, await serveImage(), place)
    const records = events.filter(({ name, when }) => name === 'rename' && when === 'begin')
    const recorded = records.map(({ record = '' }): Recorded => JSON.parse(record))
    expect(recorded.map(({ state }) => state)).toEqual([
      ...recorded.slice(1).map(() => 'unfinished'),
      'prepared',
    ])
    expect(recorded.filter(({ position }) => position > 0).length).toBeGreaterThan(1)
    const firstWrite = events.findIndex(({ path, name }) => path === place.disk && name !== 'datasync')
    expect(events.slice(0, firstWrite).some(({ name, when }) => name === 'rename' && when === 'end')).toBe(
      true,
    )
    for (const [index, rename] of records.entries()) {
      const { position = 0, state } = recorded[index] ?? {}
      const until = events.slice(0, events.indexOf(rename))
      // The disk is written meanwhile.
      const ofRecord = until.filter(({ path }) => path === `${place.stateFile}.new`)
      expect(ofRecord.at(-1)).toMatchObject({ when: 'end', name: 'sync' })
      const whole = state === 'prepared' ? IMAGE.length : position
      if (whole > 0) expect(isDurable(until, place.disk, whole)).toBe(true)
    }
    expect(events.at(-1)).toMatchObject({ when: 'end', name: 'sync', path: join(place.disk, '..') })
  })

  it('that is killed before any of its writes is finished by the next one', async () => {
    const kept: number[] = []
    // Two at a time, as many as the host of the tests has processors. The number of writes varies with the checkpoints.
    const lanes = [1, 2].map(async (lane) => {
      for (let dies = lane; ; dies += 2) {
        const position = await killedAt(dies)
        if (position === undefined) return
        kept.push(position)
      }
    })
    await Promise.all(lanes)
    expect(kept.length).toBeGreaterThan(20)
    expect(kept.filter((position) => position > 0).length).toBeGreaterThan(5)
  }, 120_000)
})

/** Returns where the next preparation went on; undefined when the first one has ended before this write. */
async function killedAt(dies: number): Promise<number | undefined> {
  const [server, place] = [await serveImage(), newPlace()]
  const { isKilled } = await prepareInChild(dies, server, place)
  const asked = server.ranges.length
  const record: Recorded | undefined = existsSync(place.stateFile)
    ? JSON.parse(readFileSync(place.stateFile, 'utf8'))
    : undefined
  if (record === undefined) {
    expect(readFileSync(place.disk).length, `write ${dies}`).toBe(0)
  } else if (record.state === 'prepared') {
    expect(sha256Of(readFileSync(place.disk)), `write ${dies}`).toBe(SHA256)
  } else {
    await expect(refuseUnfinishedDisk(place), `write ${dies}`).rejects.toThrow('only a part')
  }
  await prepareRootDisk({ url: `${server.url}#sha256=${SHA256}`, ...place, limits: LIMITS })
  await refuseUnfinishedDisk(place)
  expect(sha256Of(readFileSync(place.disk)), `write ${dies}`).toBe(SHA256)
  const position = record?.state === 'unfinished' ? record.position : 0
  const range = position === 0 ? '' : `bytes=${position}-`
  expect(server.ranges.slice(asked), `write ${dies}`).toEqual(record?.state === 'prepared' ? [] : [range])
  return isKilled ? position : undefined
}

function serveImage(): Promise<ImageServer> {
  return serve((request, answer) => answerImage(request, answer, { image: IMAGE, etag: '"one"' }))
}

/** Whether all writes below `bytes` had ended when a sync of the disk began that has ended. */
function isDurable(events: readonly WriteEvent[], disk: string, bytes: number): boolean {
  const ofDisk = (event: WriteEvent, name: string, when: string) =>
    event.path === disk && event.name === name && event.when === when
  const lastWrite = events.findLastIndex(
    (event) => ofDisk(event, 'write', 'end') && Number(event.position) < bytes,
  )
  const sync = events.findIndex((event, index) => index > lastWrite && ofDisk(event, 'datasync', 'begin'))
  const number = events[sync]?.write
  return lastWrite >= 0 && events.some((event) => ofDisk(event, 'datasync', 'end') && event.write === number)
}

async function prepareInChild(
  dies: number,
  { url }: ImageServer,
  { disk, stateFile }: DiskPlace,
): Promise<{ readonly events: readonly WriteEvent[]; readonly isKilled: boolean }> {
  const program = join(import.meta.dirname, 'die-at-write.ts')
  const words = [
    program,
    String(dies),
    `${url}#sha256=${SHA256}`,
    disk,
    stateFile,
    String(LIMITS.checkpointBytes),
  ]
  const child = spawn(pinnedNode(), words, { stdio: ['ignore', 'pipe', 'inherit'], env: {} })
  const [output, ended] = await Promise.all([text(child.stdout), once(child, 'close')])
  const isKilled = dies > 0 && ended[1] === 'SIGKILL'
  expect(ended, `write ${dies}`).toEqual(isKilled ? [null, 'SIGKILL'] : [0, null])
  const events = output
    .trim()
    .split('\n')
    .filter((line) => line !== '')
    .map((line): WriteEvent => JSON.parse(line))
  return { events, isKilled }
}
