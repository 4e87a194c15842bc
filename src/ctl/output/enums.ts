/** The name of an enum's value, as the proto has it; the number of a value that this version does not know. */
export function enumName(values: Readonly<Record<string, number>>, value: number): string {
  return Object.keys(values).find((name) => values[name] === value) ?? String(value)
}
