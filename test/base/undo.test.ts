import { afterEach, describe, expect, it, vi } from 'vitest'
import { undoAndThrow } from '../../src/base/undo.ts'

describe('undoAndThrow', () => {
  afterEach(() => vi.restoreAllMocks())

  it('waits for the undo, and drops its failure', async () => {
    const steps: string[] = []
    const failed = undoAndThrow(new Error('first'), async () => {
      await new Promise((resolve) => setImmediate(resolve))
      steps.push('undone')
      throw new Error('second')
    })
    await expect(failed).rejects.toThrow('first')
    expect(steps).toEqual(['undone'])
  })

  it('gives up an undo that heeds no signal', async () => {
    vi.spyOn(AbortSignal, 'timeout').mockReturnValue(AbortSignal.abort())
    await expect(undoAndThrow(new Error('first'), () => new Promise(() => {}))).rejects.toThrow('first')
  })
})
