import { statSync } from 'node:fs'

/** The largest size of each image, in bytes; growth beyond it is a decision, not an accident. */
const BUDGETS = {
  'stage-one initrd': 3 * 2 ** 20,
  // Its kernel has ext4 as a module.
  'generic stage-one initrd': 5 * 2 ** 20,
  'all-in-one initrd': 60 * 2 ** 20,
  'root disk': 176 * 2 ** 20,
} as const

/** An image that has a budget. */
export type Budgeted = keyof typeof BUDGETS

/** Throws when the file at `path` is larger than its budget. */
export function checkBudget(kind: Budgeted, path: string): void {
  const { size } = statSync(path)
  const budget = BUDGETS[kind]
  if (size > budget)
    throw new Error(`the ${kind} has ${size} bytes, its budget (rootfs/budget.ts) is ${budget}`)
}
