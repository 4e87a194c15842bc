import { appendFileSync, existsSync, writeSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { MOVES, movesAsked } from '../../../../../scripts/test/moves-run.ts'
import { messageOf } from '../../../../../src/base/errors.ts'
import { randomFrom } from '../../../../support/kills/random.ts'
import { Fleet } from '../../../../support/wing/moves/fleet.ts'
import { chooseFault, type Fault, textOf } from '../../../../support/wing/moves/move-faults.ts'
import { MovingMachine } from '../../../../support/wing/moves/random-moves.ts'

const asked = movesAsked(process.env)
const { [MOVES.figures]: figuresFile, [MOVES.stop]: stopFile } = process.env

const AT_ONCE = { delayMs: 0, lastMs: 0 } as const
/** What `npm test` takes. */
const FEW: readonly Fault[] = [
  { kind: 'none', step: 'end', ...AT_ONCE },
  { kind: 'none', step: 'end', ...AT_ONCE },
  { kind: 'kill', who: 'source', step: 'memory', ...AT_ONCE },
  { kind: 'kill', who: 'target', step: 'switchover', ...AT_ONCE },
  { kind: 'kill', who: 'source', step: 'switchover', ...AT_ONCE },
  { kind: 'drop', wire: 'source-controllers', step: 'memory', delayMs: 0, lastMs: 2000 },
]

const count = asked?.count ?? FEW.length
const faultOf = (number: number): Fault | undefined =>
  asked === undefined ? FEW[number] : chooseFault(randomFrom(asked.seed + number))

const AS_LONG_AS_ASKED_MS = 24 * 60 * 60_000
/** Moves of one machine, whose disk is full some time. */
const OF_ONE_MACHINE = 40
const MOST_FAILURES = 10

describe('a machine that moves while something fails', () => {
  it('is run by one host at a time, and by one in the end, and loses nothing', {
    timeout: AS_LONG_AS_ASKED_MS,
  }, async () => {
    const failures: string[] = []
    const isOver = () => failures.length >= MOST_FAILURES || (stopFile !== undefined && existsSync(stopFile))
    let number = 0
    while (number < count && !isOver()) {
      const fleet = await Fleet.start({ leaseTtlMs: asked?.leaseTtlMs ?? 0 })
      try {
        const machine = new MovingMachine(fleet)
        await machine.boot()
        for (let of = 0; of < OF_ONE_MACHINE && number < count && !isOver(); of++) {
          const fault = faultOf(number)
          number += 1
          if (fault === undefined) continue
          const figure = await machine.move(fault).catch((error) => {
            const seed = asked === undefined ? '' : `, --seed ${asked.seed + number - 1} --count 1`
            throw new Error(`move ${number}${seed}: ${textOf(fault)}: ${messageOf(error)}`)
          })
          if (figuresFile !== undefined) appendFileSync(figuresFile, `${JSON.stringify(figure)}\n`)
          if (asked !== undefined)
            writeSync(1, `${number} of ${count}: ${figure.text}: ${figure.settledMs.toFixed(0)} ms\n`)
        }
        expect(await fleet.end()).toEqual([])
      } catch (error) {
        failures.push(messageOf(error))
        writeSync(1, `${messageOf(error)}\n${fleet.logs()}\n`)
        await fleet.kill()
      }
    }
    expect(failures).toEqual([])
    expect(number).toBeGreaterThan(0)
  })
})
