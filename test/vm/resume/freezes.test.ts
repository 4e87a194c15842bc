import { appendFileSync, writeSync } from 'node:fs'
import { setTimeout as delay } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { FREEZES, type FreezesFigures, freezesShare } from '../../../scripts/test/freezes-run.ts'
import { messageOf } from '../../../src/base/errors.ts'
import { FreezingMachine, type Way } from '../../support/freezes/machine.ts'
import { FrozenWork, PORT, WORDS } from '../../support/freezes/work.ts'
import { randomFrom } from '../../support/kills/random.ts'
import { cannotBoot } from '../../support/vm/boot-guest.ts'

const { count, seed, progressMs } = freezesShare(process.env)
const AS_LONG_AS_ASKED_MS = 24 * 60 * 60_000
/** Freezes of one guest. */
const OF_ONE_GUEST = 40
/** From the guest's going on to the first answer, on a busy machine: of one that idles it takes a tenth of this. */
const FIRST_ANSWER_MS = { kept: 20_000, killed: 60_000 }

describe.skipIf(cannotBoot() !== undefined)('a guest that stops at any moment, and goes on', () => {
  it.for<Way>(['stop', 'restore'])(
    'answers, loses no exit and no byte, and leaves nothing: %s',
    { timeout: AS_LONG_AS_ASKED_MS },
    async (way) => {
      const random = randomFrom(seed + (way === 'stop' ? 0 : 1))
      const wanted = Math.ceil(count / 2)
      const figures = new Map<string, FreezesFigures>()
      const begin = performance.now()
      let toldAt = begin
      for (let done = 0; done < wanted; ) {
        const machine = new FreezingMachine(way)
        const work = new FrozenWork()
        try {
          await machine.boot(WORDS)
          await machine.listen(PORT, (text) => work.portText(text))
          await work.begin(await machine.connect(), way === 'stop')
          await work.exec(1)
          await work.look(machine.consoleText)
          for (let of = 0; of < OF_ONE_GUEST && done < wanted; of++) {
            const isKilled = random() < 0.5
            const figure = await freeze(machine, work, { way, random, isKilled, number: done })
            done += 1
            add(figures, figure)
            expect(work.faults, `freeze ${done}, --seed ${seed}: ${figure.kind}`).toEqual([])
            if (performance.now() - toldAt < progressMs) continue
            toldAt = performance.now()
            writeSync(1, `${way}: ${done} of ${wanted} freezes, ${((toldAt - begin) / 1000).toFixed(0)} s\n`)
          }
          await work.end()
        } catch (error) {
          const what = `freeze ${done + 1}, --seed ${seed}: ${messageOf(error)}`
          throw new Error(`${what}; the console:\n${machine.consoleText.slice(-4000)}`, { cause: error })
        } finally {
          await machine.close()
        }
      }
      const file = process.env[FREEZES.figures]
      for (const figure of figures.values())
        if (file !== undefined) appendFileSync(file, `${JSON.stringify(figure)}\n`)
    },
  )
})

async function freeze(
  machine: FreezingMachine,
  work: FrozenWork,
  given: {
    readonly way: Way
    readonly random: () => number
    readonly isKilled: boolean
    readonly number: number
  },
): Promise<FreezesFigures> {
  const { way, random, isKilled, number } = given
  const began = performance.now()
  // This process lives through the freeze, or ends in it.
  const exec = work.exec(Math.round(random() * 1500))
  await delay(random() * 1000)
  await work.detach(isKilled ? random() * 600 : undefined)
  await machine.freeze(WORDS, random() * 1000)
  const goes = performance.now()
  const connection = await machine.connect()
  const answerMs = performance.now() - goes
  const most = isKilled ? FIRST_ANSWER_MS.killed : FIRST_ANSWER_MS.kept
  if (answerMs > most) work.faults.push(`the first answer came after ${answerMs} ms`)
  await work.goOn(connection, `freeze ${number}`)
  await Promise.all([exec, work.goesOn()])
  await work.look(machine.consoleText)
  const kind = isKilled ? `${way}, agent killed` : way
  return { kind, count: 1, seconds: (performance.now() - began) / 1000, slowestAnswerMs: answerMs }
}

function add(
  figures: Map<string, FreezesFigures>,
  { kind, count, seconds, slowestAnswerMs }: FreezesFigures,
): void {
  const known = figures.get(kind) ?? { count: 0, seconds: 0, slowestAnswerMs: 0 }
  figures.set(kind, {
    kind,
    count: known.count + count,
    seconds: known.seconds + seconds,
    slowestAnswerMs: Math.max(known.slowestAnswerMs, slowestAnswerMs),
  })
}
