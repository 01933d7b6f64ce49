"""Tables are read as a spreadsheet shows them; errors name the column and the line."""

import importlib.util

import numpy as np
import pytest

from asker.curves.table import number_of, read_table
from asker.io.files import FileError

X, Y = [0.0, 0.5, 1.0, 1.5], [2.0, -1.25, 1e-3, 4e5]
LAYOUTS = {
    "comma": "x,y\n0,2\n0.5,-1.25\n1,1e-3\n1.5,4e5\n",
    "semicolon": "x;y\n0;2\n0.5;-1.25\n1;1e-3\n1.5;4e5\n",
    "decimal comma": "x;y\n0;2\n0,5;-1,25\n1;0,001\n1,5;4e5\n",
    "decimal comma, tabs": "x\ty\n0\t2\n0,5\t-1,25\n1\t0,001\n1,5\t4e5\n",
    "white space": "x y\n0   2\n0.5 -1.25\n1 1e-3\n1.5  4e5\n",
    "quoted": '"x","y"\n"0","2"\n"0.5","-1.25"\n"1","1e-3"\n"1.5","4e5"\n',
    "comments": "# made by an instrument\nx,y\n\n0,2\n0.5,-1.25\n# pause\n1,1e-3\n1.5,4e5\n",
    "units in the header": "x (s),y [m/s]\n0,2\n0.5,-1.25\n1,1e-3\n1.5,4e5\n",
    "units after a slash": "x/s;y / mV\n0;2\n0,5;-1,25\n1;0,001\n1,5;4e5\n",
    "units in a line": "x,y\ns,m\n0,2\n0.5,-1.25\n1,1e-3\n1.5,4e5\n",
    "byte order mark": "\ufeffx,y\r\n0,2\r\n0.5,-1.25\r\n1,1e-3\r\n1.5,4e5\r\n",
    "true minus": "x,y\n0,2\n0.5,−1.25\n1,1e-3\n1.5,4e5\n",
}  # fmt: skip


def written(tmp_path, text, name="data.csv"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_has_the_same_numbers(tmp_path, layout):
    table = read_table(written(tmp_path, LAYOUTS[layout]))
    np.testing.assert_array_equal(table.numbers("x"), X)
    np.testing.assert_array_equal(table.numbers("y"), Y)
    if "units" in layout:
        assert table.known("x").unit == "s"


def test_missing_values_are_nan_and_columns_without_a_header_have_numbers(tmp_path):
    table = read_table(written(tmp_path, "1,2\nNA,3\n,4\n5,n/a\n"))
    np.testing.assert_array_equal(table.numbers("column1"), [1, np.nan, np.nan, 5])
    np.testing.assert_array_equal(table.numbers("column2"), [2, 3, 4, np.nan])


def test_a_header_in_another_encoding_is_read(tmp_path):
    table = read_table(written(tmp_path, "T (°C),y\n1,2\n3,4\n".encode("cp1252")))
    assert table.known("T").unit == "°C"


def test_columns_have_three_names(tmp_path):
    table = read_table(written(tmp_path, "time of day (h),y\n1,2\n3,4\n"))
    for name in ("time of day (h)", "time of day", "time_of_day"):
        np.testing.assert_array_equal(table.numbers(name), [1, 3])


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("x,y\n1,2\n3,4,5\n6,7\n8,9\n", None, r"data\.csv:3: this line has 3 fields, and most have 2"),
        ("x,y\n1,2\n3,four\n", "y", r"data\.csv:3: column 'y' has 'four', which is not a number \(1 such values\)"),
        ("x,y\n1,2\n", "z", r"there is no column 'z'; the columns are x, y"),
        ("time,y\n1,2\n", "tine", r"did you mean time\?"),
        ("x (s),x (m)\n1,2\n", "x", r"the name of 2 columns"),
        ("", None, "the file has no rows"),
        ("x,y\n", None, "a header but no rows"),
        (b"PK\x00\x00", None, "not a text file"),
    ],
)
def test_errors_name_the_line_and_the_column(tmp_path, text, column, message):
    with pytest.raises(FileError, match=message):
        read_table(written(tmp_path, text)).numbers(column)


def test_numbers_of_programs_and_people():
    assert number_of("1.5E+3") == 1500
    assert number_of("1D3") == 1000
    assert number_of("1,5", decimal_commas=True) == 1.5
    assert number_of("1.234,5", decimal_commas=True) is None
    assert number_of("1_000") is None
    assert number_of("٣") is None
    assert np.isnan(number_of("#N/A"))


@pytest.mark.parametrize("suffix", ["parquet", "xlsx"])
def test_files_of_pandas(tmp_path, suffix):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip({"parquet": "pyarrow", "xlsx": "openpyxl"}[suffix])
    path = tmp_path / f"data.{suffix}"
    frame = pandas.DataFrame({"x (s)": X, "y": Y, "group": ["a", None, "b", "a"]})
    getattr(frame, {"parquet": "to_parquet", "xlsx": "to_excel"}[suffix])(path, index=False)
    table = read_table(path)
    np.testing.assert_array_equal(table.numbers("x"), X)
    np.testing.assert_array_equal(table.numbers("y"), Y)
    assert table.labels("group") == ["a", "", "b", "a"]


@pytest.mark.skipif(importlib.util.find_spec("pandas") is not None, reason="pandas is installed")
def test_without_pandas_the_message_names_it(tmp_path):
    with pytest.raises(FileError, match="need pandas: pip install pandas"):
        read_table(written(tmp_path, b"PAR1", "data.parquet"))
