import { appendFileSync, existsSync, writeSync } from 'node:fs'
import { setTimeout as delay } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { FREEZES, type FreezesFigures, freezesShare } from '../../../scripts/test/freezes-run.ts'
import { messageOf } from '../../../src/base/errors.ts'
import { isBusy } from '../../support/busy.ts'
import { FreezingMachine } from '../../support/freezes/machine.ts'
import { SuspendedMachine } from '../../support/freezes/suspended-machine.ts'
import { FrozenWork, PORT, WORDS } from '../../support/freezes/work.ts'
import { randomFrom } from '../../support/kills/random.ts'
import { cannotBoot } from '../../support/vm/boot-guest.ts'

const { count, seed, progressMs } = freezesShare(process.env)
const { [FREEZES.figures]: figuresFile, [FREEZES.stop]: stopFile } = process.env
/** `suspend`: a daemon saves the machine as a file, and resumes it. */
const WAYS = ['stop', 'restore', 'suspend'] as const
const AS_LONG_AS_ASKED_MS = 24 * 60 * 60_000
/** Freezes of one guest. */
const ofOneGuest = Math.min(40, Math.ceil(count / WAYS.length))
const MOST_FAILURES = 10
/** From the guest's going on to the first answer: of a machine that idles it takes a tenth of this. */
const FIRST_ANSWER_MS = { kept: 20_000, killed: 60_000 }
/** On a machine that has far more to do than it can. */
const BUSY_FACTOR = 5

describe.skipIf(cannotBoot() !== undefined)('a guest that stops at any moment, and goes on', () => {
  it('answers, loses no exit and no byte, and leaves nothing', {
    timeout: AS_LONG_AS_ASKED_MS,
  }, async () => {
    const random = randomFrom(seed)
    const failures: string[] = []
    const begin = performance.now()
    const asked = { over: false }
    const isOver = () => {
      asked.over ||= stopFile !== undefined && existsSync(stopFile)
      return asked.over || failures.length >= MOST_FAILURES
    }
    let toldAt = begin
    let done = 0
    const tell = (figure: FreezesFigures) => {
      done += 1
      if (figuresFile !== undefined) appendFileSync(figuresFile, `${JSON.stringify(figure)}\n`)
      if (performance.now() - toldAt < progressMs) return
      toldAt = performance.now()
      writeSync(1, `${done} of ${count} freezes, ${((toldAt - begin) / 1000).toFixed(0)} s\n`)
    }
    for (let guests = 0; done < count && !isOver(); guests++) {
      const way = WAYS[guests % WAYS.length] ?? 'stop'
      const machine = way === 'suspend' ? new SuspendedMachine() : new FreezingMachine(way)
      const work = new FrozenWork()
      try {
        await machine.boot(WORDS)
        if (machine instanceof FreezingMachine)
          await machine.listen(PORT, (socket) => work.portConnected(socket))
        await work.begin(await machine.connect(), way === 'stop')
        await work.exec(1)
        await work.look(await machine.consoleText())
        for (let of = 0; of < ofOneGuest && done < count && !isOver(); of++) {
          const [isKilled, isPlanned] = [random() < 0.5, random() < 0.5 && way !== 'suspend']
          const figure = await freeze(machine, work, { way, random, isKilled, isPlanned, number: done })
          if (work.faults.length > 0) throw new Error(`${figure.kind}: ${work.faults.join('; ')}`)
          tell(figure)
        }
        await work.end()
      } catch (error) {
        const text = `freeze ${done + 1}, --seed ${seed}, ${way}: ${messageOf(error)}`
        const printed = await machine.consoleText()
        failures.push(`${text}; ${work.faults.join('; ')}; the console:\n${printed.slice(-4000)}`)
        tell({ kind: `${way}, failed`, count: 1, seconds: 0, slowestAnswerMs: 0 })
        writeSync(1, `${failures.at(-1)}\n`)
      } finally {
        await machine.close()
      }
    }
    expect(failures).toEqual([])
    expect(done).toBeGreaterThan(0)
  })
})

async function freeze(
  machine: FreezingMachine | SuspendedMachine,
  work: FrozenWork,
  given: {
    readonly way: (typeof WAYS)[number]
    readonly random: () => number
    readonly isKilled: boolean
    readonly isPlanned: boolean
    readonly number: number
  },
): Promise<FreezesFigures> {
  const { way, random, isKilled, isPlanned, number } = given
  const began = performance.now()
  // This process lives through the freeze, or ends in it.
  const exec = work.exec(Math.round(random() * 1500))
  await delay(random() * 1000)
  await work.detach(isKilled ? random() * 600 : undefined, isPlanned)
  const ms = random() * 1000
  if (machine instanceof SuspendedMachine) await machine.freeze(ms)
  else await machine.freeze(WORDS, ms)
  const goes = performance.now()
  const connection = await machine.connect()
  const answerMs = performance.now() - goes
  const most = (isKilled ? FIRST_ANSWER_MS.killed : FIRST_ANSWER_MS.kept) * (isBusy() ? BUSY_FACTOR : 1)
  if (answerMs > most) work.faults.push(`the first answer came after ${answerMs} ms`)
  await work.goOn(connection, `freeze ${number}`)
  await Promise.all([exec, work.goesOn()])
  await work.look(await machine.consoleText())
  const kind = [
    way,
    ...(isPlanned || way === 'suspend' ? [] : ['unplanned']),
    ...(isKilled ? ['agent killed'] : []),
  ].join(', ')
  return { kind, count: 1, seconds: (performance.now() - began) / 1000, slowestAnswerMs: answerMs }
}
